// Publishes a message, or sends a request and shows its reply.
import { ApiError, curl, get, post, restPath, schemaPath } from "../api.js";
import { misfit } from "../avro.js";
import { pretty } from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useState } from "../lib.js";
import { topicLink } from "../router.js";
import { Command, Field, Form, Loaded } from "../ui.js";

const FREE = [["text", "text"], ["json", "JSON"], ["base64", "bytes (base64)"]];

// The request's body for what the form holds. Throws an ApiError that says what does not fit.
export function bodyOf(schema, { kind, value, key, properties, partition, deliverAfterMs }) {
  const message = {};
  if (key) message.key = key;
  if (properties.trim()) message.properties = parsed(properties, "The properties are");
  if (deliverAfterMs) message.deliverAfterMs = Number(deliverAfterMs);
  if (partition !== undefined && partition !== "") message.partition = Number(partition);
  if (!schema) {
    if (kind === "text") return { messages: [{ ...message, value }] };
    if (kind === "json") return { schema_type: "json", messages: [{ ...message, value: parsed(value, "The value is") }] };
    return { schema_type: "bytes", messages: [{ ...message, value }] };
  }
  const texts = ["STRING", "BYTES"].includes(schema.type);
  message.value = texts ? value : parsed(value, "The value is");
  if (["AVRO", "JSON"].includes(schema.type) && schema.data) {
    const wrong = misfit(JSON.parse(schema.data), message.value);
    if (wrong) throw new ApiError(0, 0, `The value does not fit schema version ${schema.version}: ${wrong}.`);
  }
  return { schema_version: schema.version, messages: [message] };
}

function parsed(text, what) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new ApiError(0, 0, `${what} not valid JSON: ${error.message}`);
  }
}

export function Publish(props) {
  const schemas = useLoad(
    async (signal) => (await get(`${schemaPath(props.name)}/schemas`, {}, signal)).getSchemaResponses.filter((each) => each.type !== "NONE"),
    [props.name, props.topic.schemaVersion]);
  return html`<${Loaded} of=${schemas}>${(known) => html`<${Sending} known=${known} ...${props} />`}</${Loaded}>`;
}

function Sending({ known, name, topic, stats }) {
  const [version, setVersion] = useState(null);
  const [last, setLast] = useState(null);
  const schema = known.find((each) => each.version === (version ?? known.at(-1)?.version));

  const send = (request) => async (values) => {
    const body = bodyOf(schema, values);
    const path = request ? `${restPath(name)}/request` : restPath(name);
    setLast(null);
    const answer = request ? await post(path, body, { timeout: values.timeout || 10000 }) : await post(path, body);
    const slot = answer.messageIds?.[0];
    if (slot?.error) throw new ApiError(0, 0, slot.error);
    setLast({ answer, slot, request, command: curl("POST", path, { body, values: request ? { timeout: values.timeout || 10000 } : undefined }) });
    stats.reload();
    return request ? "Reply received." : "Published.";
  };
  const [request, setRequest] = useState(false);
  return html`
    <fieldset class="choice"><legend>Send</legend>
      <label><input type="radio" name="mode" checked=${!request} onChange=${() => setRequest(false)} /> Message</label>
      <label><input type="radio" name="mode" checked=${request} onChange=${() => setRequest(true)} /> Request, and wait for the reply</label>
    </fieldset>
    <${Form} key=${request} submit=${request ? "Request" : "Publish"} action=${send(request)}>
      ${known.length
        ? html`<${Field} label="Schema"><select value=${schema?.version} onChange=${(event) => setVersion(Number(event.target.value))}>
            ${known.map((each) => html`<option key=${each.version} value=${each.version}>version ${each.version}: ${each.type}</option>`)}</select></${Field}>`
        : html`<${Field} label="Format" hint="The topic has no schema yet. A text or JSON value registers one."><select name="kind">${FREE.map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}</select></${Field}>`}
      <${Field} label="Value"><textarea name="value" rows="8" spellcheck=${false} placeholder=${schema && schema.type !== "STRING" ? example(schema) : "hello, world"}></textarea></${Field}>
      <div class="toolbar">
        <${Field} label="Key"><input name="key" /></${Field}>
        <${Field} label="Properties (JSON)"><input name="properties" placeholder='{"lang": "en"}' /></${Field}>
        ${topic.partitions > 0 && html`<${Field} label="Partition"><input name="partition" type="number" min="0" max=${topic.partitions - 1} placeholder="by key" /></${Field}>`}
        ${request
          ? html`<${Field} label="Timeout (ms)"><input name="timeout" type="number" min="1" defaultValue="10000" /></${Field}>`
          : html`<${Field} label="Deliver after (ms)"><input name="deliverAfterMs" type="number" min="0" /></${Field}>`}
      </div>
    </${Form}>
    ${last && html`
      <section class="card">
        ${last.request
          ? html`<h3>${last.answer.isErrorResult ? "Error reply" : "Reply"}</h3><pre class="value"><code>${pretty(last.answer.replyContent) ?? "null"}</code></pre>`
          : html`<p>Message <code>${last.slot.messageId}</code> is in partition ${last.slot.partition}. <a href=${topicLink(name)}>Show messages</a></p>`}
        <${Command} text=${last.command} />
      </section>`}`;
}

// A value that a definition of Avro's allows, to begin with.
export function example(schema) {
  try {
    return JSON.stringify(made(JSON.parse(schema.data)), null, 2);
  } catch {
    return "";
  }
}

function made(schema) {
  if (Array.isArray(schema)) return schema.includes("null") ? null : made(schema[0]);
  if (schema.type === "record") return Object.fromEntries(schema.fields.map((field) => [field.name, field.default ?? made(field.type)]));
  if (schema.type === "array") return [];
  if (schema.type === "map") return {};
  if (schema.type === "enum") return schema.symbols[0];
  if (typeof schema === "object") return made(schema.type);
  return { null: null, boolean: false, int: 0, long: 0, float: 0, double: 0 }[schema] ?? "";
}
