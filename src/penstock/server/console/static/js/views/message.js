// One message, whole: its metadata, its value by its schema, and its bytes.
import { curl, get, partitionPath } from "../api.js";
import { bytes as size, count, pretty, time } from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useState } from "../lib.js";
import { Action, Command, Copy, Problem } from "../ui.js";

const BASE64_MAX = 6144; // characters: 4,608 bytes

// The request that reads this message: without offsets, those that were published with it, too.
const wanted = (message) =>
  message.offset == null
    ? { publish_time: message.publishTime, max_messages: 1000 }
    : { offset: message.offset, end_offset: message.offset + 1, max_messages: 1 };

export function Message({ name, message, href }) {
  const [raw, setRaw] = useState(false);
  const [whole, setWhole] = useState(null);
  const cut = message.valueSize != null && whole === null;
  const value = whole === null ? message.value : whole.value;
  const path = partitionPath(name, message.partition);
  const properties = Object.entries(message.properties ?? {});
  return html`
    <article class="message">
      <dl>
        <dt>Message id</dt><dd><code>${message.messageId}</code></dd>
        <dt>Partition</dt><dd>${message.partition}</dd>
        <dt>Offset</dt><dd>${message.offset ?? "–"}</dd>
        <dt>Key</dt><dd>${message.key == null ? html`<span class="dim">none</span>` : html`<code>${typeof message.key === "string" ? message.key : JSON.stringify(message.key)}</code>`}</dd>
        <dt>Published</dt><dd>${time(message.publishTime)}</dd>
        ${message.eventTime ? html`<dt>Event time</dt><dd>${time(message.eventTime)}</dd>` : null}
        ${message.producerName && html`<dt>Producer</dt><dd>${message.producerName}${message.sequenceId == null ? "" : `, sequence id ${message.sequenceId}`}</dd>`}
        ${message.schema_version != null && html`<dt>Schema version</dt><dd>${message.schema_version}</dd>`}
        ${message.redeliveryCount ? html`<dt>Redeliveries</dt><dd>${message.redeliveryCount}</dd>` : null}
        ${properties.map(([key, value]) => html`<dt key=${key} class="property">${key}</dt><dd>${value}</dd>`)}
      </dl>
      <div class="buttons" role="group" aria-label="Shown as">
        <button type="button" class="small" aria-pressed=${!raw} onClick=${() => setRaw(false)}>Value</button>
        <button type="button" class="small" aria-pressed=${raw} onClick=${() => setRaw(true)}>Bytes</button>
        <${Copy} text=${pretty(value) ?? ""} label=${cut ? "Copy the shown part" : "Copy value"} />
        ${cut && html`<${Action} label=${`Load the whole value (${size(message.valueSize)})`} action=${async () => setWhole(await load(path, message))} />`}
        <a href=${href}>Link to this message</a>
      </div>
      ${message.error && html`<p class="problem">${message.error}</p>`}
      ${raw ? html`<${Raw} path=${path} message=${message} />` : html`<pre class="value"><code>${pretty(value) ?? "null"}${cut ? "…" : ""}</code></pre>`}
      <${Command} text=${curl("GET", `${path}/messages`, { values: wanted(message) })} />
    </article>`;
}

async function load(path, message, more, signal) {
  const answer = await get(`${path}/messages`, { ...wanted(message), ...more }, signal);
  const found = answer.messages.find((each) => each.messageId === message.messageId);
  if (!found) throw new Error("The message no longer exists.");
  return found;
}

function Raw({ path, message }) {
  const found = useLoad((signal) => load(path, message, { encoding: "base64", max_value_bytes: BASE64_MAX }, signal), [message.messageId]);
  if (found.error) return html`<${Problem} error=${found.error} />`;
  if (!found.value) return html`<p class="loading">Loading the bytes …</p>`;
  const bytes = Uint8Array.from(atob(found.value.value ?? ""), (each) => each.charCodeAt(0)).subarray(0, 4096);
  return html`<pre class="value"><code>${hexDump(bytes)}</code></pre>${found.value.valueSize && html`<p class="dim">The first ${count(bytes.length)} bytes.</p>`}`;
}

export function hexDump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const hex = row.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const text = row.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}
