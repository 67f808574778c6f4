// Publishes dead letters to their topic again, by the public API: consumed, published, then acknowledged.
import { call, get, post, restPath, schemaPath } from "./api.js";

const SUBSCRIPTION = "console-redrive";
const PAGE = 100;
// What dead lettering put on, and what is the message's own.
const ADDED = ["REAL_TOPIC", "REAL_SUBSCRIPTION", "ORIGIN_MESSAGE_ID", "DEAD_LETTER_REASON"];

// Moves what is in `letters` to `topic`; `progress(count)`. Returns the count. What fails stays in the dead letters.
export async function redrive(letters, topic, progress) {
  const base = `${restPath(letters)}/subscription/${SUBSCRIPTION}`;
  const instance = await post(base, { subscription_type: "Shared", initial_position: "earliest" });
  const place = new URL(instance.base_uri, location.origin).pathname;
  let moved = 0;
  try {
    for (;;) {
      const { messages } = await get(`${place}/messages`, { max_messages: PAGE, timeout: 200, encoding: "base64" });
      if (!messages.length) return moved;
      for (const message of messages) {
        await publish(letters, topic, message);
        const results = await post(`${base}/cursor`, { messageIds: [message.messageId] });
        if (results?.error) throw new Error(results.error);
        moved += 1;
        progress(moved);
      }
    }
  } finally {
    await call("DELETE", place).catch(() => null);
  }
}

async function publish(letters, topic, message) {
  const own = Object.entries(message.properties ?? {}).filter(([name]) => !ADDED.includes(name));
  const made = { value: message.value, properties: Object.fromEntries(own) };
  if (message.key != null) made.key = message.key;
  if (message.keyIsBase64) made.keyIsBase64 = true;
  if (message.eventTime) made.eventTime = message.eventTime;
  const body = { messages: [made], encoding: "base64" };
  const schema = message.schema_version == null ? null : await get(`${schemaPath(letters)}/schema/${message.schema_version}`);
  if (schema) body.value_schema = { type: schema.type, schema: schema.data, properties: schema.properties };
  else body.schema_type = "bytes";
  const answer = await post(restPath(topic), body);
  const slot = answer.messageIds[0];
  if (slot.error) throw new Error(slot.error);
}
