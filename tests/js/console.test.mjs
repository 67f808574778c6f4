// The console's modules that need no browser: filters, checks of values, differences, names.
import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.sessionStorage = globalThis.localStorage = { getItem: () => null };
globalThis.location = { origin: "http://here" };
const modules = new URL("../../src/penstock/server/console/static/js/", import.meta.url);
const { makeFilter, parsePath } = await import(new URL("filter.js", modules));
const { misfit } = await import(new URL("avro.js", modules));
const { sideBySide } = await import(new URL("diff.js", modules));
const { adminPath, curl, parseTopic, remove, restPath, shortTopic } = await import(new URL("api.js", modules));
const { Backwards } = await import(new URL("reading.js", modules));
const { eventOf } = await import(new URL("stream.js", modules));
const { parseReferences, topicOf } = await import(new URL("views/subjects.js", modules));
const { bytes, oneLine, rate } = await import(new URL("format.js", modules));

const message = { key: "k", properties: { lang: "en" }, value: { order: { items: [{ price: 3.5, name: "tea" }] } } };

test("a path names a place in a value", () => {
  assert.deepEqual(parsePath("$.order.items[0].price"), ["order", "items", 0, "price"]);
  assert.deepEqual(parsePath('$["a b"].c'), ["a b", "c"]);
  assert.equal(parsePath("not a path"), null);
});

test("filters are all to hold", () => {
  const holds = (filter) => makeFilter({ ...filter })(message);
  assert.equal(makeFilter({}), null);
  assert.ok(holds({ key: "k", property: "lang=en", text: "TEA", condition: "$.order.items[0].price > 3" }));
  assert.ok(holds({ condition: '$.order.items[0].name = "tea"' }));
  assert.ok(holds({ condition: "$.order.items[0].name ~ ea" }));
  assert.ok(holds({ condition: "$.order.items" }));
  assert.ok(holds({ property: "lang" }));
  for (const filter of [{ key: "other" }, { property: "lang=de" }, { property: "no" }, { text: "coffee" }, { condition: "$.order.items[0].price > 4" }, { condition: "$.no" }]) {
    assert.equal(holds(filter), false, JSON.stringify(filter));
  }
  assert.throws(() => makeFilter({ condition: "a b = 1" }), /no path/);
});

test("a text that holds JSON is looked into", () => {
  assert.ok(makeFilter({ condition: "$.a = 1" })({ value: '{"a": 1}' }));
  assert.ok(!makeFilter({ condition: "$.a = 1" })({ value: "{broken" }));
});

test("a value is held against a definition", () => {
  const schema = { type: "record", name: "R", fields: [
    { name: "id", type: "long" }, { name: "note", type: ["null", "string"] }, { name: "kind", type: { type: "enum", name: "K", symbols: ["a", "b"] }, default: "a" },
    { name: "next", type: ["null", "R"], default: null }, { name: "tags", type: { type: "array", items: "string" }, default: [] }] };
  assert.equal(misfit(schema, { id: 1, note: "x", kind: "b", next: { id: 2, note: null }, tags: ["t"] }), null);
  assert.match(misfit(schema, { note: null }), /needs the field id/);
  assert.match(misfit(schema, { id: "one", note: null }), /id must be long/);
  assert.match(misfit(schema, { id: 1, kind: "c" }), /kind must be one of a, b/);
  assert.match(misfit(schema, { id: 1, tags: [1] }), /tags\[0\] must be string/);
  assert.match(misfit(schema, [1]), /must be an object/);
});

test("two texts stand side by side", () => {
  const rows = sideBySide("a\nb\nc", "a\nx\nc\nd");
  assert.deepEqual(rows.filter((row) => row.same).map((row) => row.left), ["a", "c"]);
  assert.deepEqual(rows.filter((row) => row.left === null).map((row) => row.right), ["x", "d"]);
  assert.deepEqual(rows.filter((row) => row.right === null).map((row) => row.left), ["b"]);
});

test("names become paths, and calls become command lines", () => {
  assert.deepEqual(parseTopic("non-persistent://a/b/c/d"), { domain: "non-persistent", tenant: "a", namespace: "b", local: "c/d" });
  assert.equal(restPath("persistent://public/default/a b"), "/topics/public/default/a%20b");
  assert.equal(restPath("non-persistent://public/default/t"), "/topics/non-persistent/public/default/t");
  assert.equal(adminPath("persistent://public/default/a/b"), "/admin/v2/persistent/public/default/a%2Fb");
  assert.equal(shortTopic("persistent://public/default/t"), "public/default/t");
  assert.equal(curl("POST", "/x", { body: { a: "it's" }, values: { n: 1 } }), `curl -X POST -H 'Content-Type: application/json' -d '{"a":"it'\\''s"}' 'http://here/x?n=1'`);
});

test("events are read, comments are passed over, errors are raised", () => {
  assert.deepEqual(eventOf('id: 1\ndata: {"a":1}'), { a: 1 });
  assert.equal(eventOf(": keep"), null);
  assert.throws(() => eventOf('event: error\ndata: {"message": "gone"}'), /gone/);
});

test("numbers are short", () => {
  assert.equal(bytes(1536), "1.5 KiB");
  assert.equal(rate(0), "0");
  assert.equal(rate(1234567), "1.2M");
  assert.equal(oneLine("x".repeat(400)).length, 301);
});

test("newest first passes over offsets that are nobody's, and ends", async () => {
  const there = [...Array.from({ length: 30 }, (_, each) => each), ...Array.from({ length: 20 }, (_, each) => 1_000_000 + 7 * each)];
  let asked = 0;
  globalThis.fetch = async (url) => {
    asked += 1;
    const values = Object.fromEntries(new URL(url, "http://here").searchParams);
    const body = url.includes("/offsets")
      ? { earliest: 0, latest: 1_200_000 }
      : { messages: there.filter((each) => each >= values.offset && each < values.end_offset).slice(0, Math.min(7, values.max_messages)).map((offset) => ({ offset })) };
    return new Response(JSON.stringify(body), { headers: { "content-type": "application/json" } });
  };
  const reader = new Backwards("persistent://a/b/c", 0, {}, undefined);
  const found = [];
  for (let page = await reader.next(10); page !== null; page = await reader.next(10)) found.push(...page.map((each) => each.offset));
  assert.deepEqual(found, [...there].reverse());
  assert.ok(asked < 100, `${asked} requests`);
});

test("a name that is a step in a path is not sent", async () => {
  const sent = [];
  globalThis.fetch = async (path) => { sent.push(path); return new Response(null, { status: 204 }); };
  for (const name of [".", ".."]) {
    await assert.rejects(remove(`${adminPath("a/b/t")}/subscription/${encodeURIComponent(name)}`), { status: 412, code: 41201 });
    await assert.rejects(remove(adminPath(`a/b/${name}`)), { status: 412 });
  }
  await remove(`${adminPath("a/b/t")}/subscription/${encodeURIComponent("../x")}`);
  assert.deepEqual(sent, ["/admin/v2/persistent/a/b/t/subscription/..%2Fx"]);
});

test("subjects of topics and references of schemas are read", () => {
  assert.equal(topicOf("orders-value"), "persistent://public/default/orders");
  assert.equal(topicOf("persistent://a/b/c-value"), "persistent://a/b/c");
  assert.equal(topicOf("orders-key"), null);
  assert.equal(topicOf(":.dev:orders-value"), null);
  assert.deepEqual(parseReferences("\n shop.Drink drinks 2\nother x -1 "), [
    { name: "shop.Drink", subject: "drinks", version: 2 }, { name: "other", subject: "x", version: -1 }]);
  for (const bad of ["a b", "a b c", "a b 1 2", "a b 0"]) assert.throws(() => parseReferences(bad), /A reference is/);
});
