// Encodes and decodes with @kafkajs/confluent-schema-registry: registry.mjs URL-OF-THE-REGISTRY
import pkg from "@kafkajs/confluent-schema-registry";

const { SchemaRegistry, SchemaType, COMPATIBILITY } = pkg;
const registry = new SchemaRegistry({ host: process.argv[2] });

const avro = JSON.stringify({ type: "record", name: "Order", namespace: "shop", fields: [{ name: "drink", type: "string" }] });
const json = JSON.stringify({ title: "Order", type: "object", properties: { drink: { type: "string" } } });
const proto = 'syntax = "proto3"; package shop; message Order { string drink = 1; }';

for (const [type, schema] of [[SchemaType.AVRO, avro], [SchemaType.JSON, json], [SchemaType.PROTOBUF, proto]]) {
  const subject = `js-${type}-value`;
  const { id } = await registry.register({ type, schema }, { subject, compatibility: COMPATIBILITY.FULL });
  const framed = await registry.encode(id, { drink: "tea" });
  const decoded = await new SchemaRegistry({ host: process.argv[2] }).decode(framed);
  const known = (await registry.getLatestSchemaId(subject)) === id && (await registry.getRegistryId(subject, 1)) === id;
  console.log(JSON.stringify({ type, framing: framed[0], drink: decoded.drink, known }));
}
