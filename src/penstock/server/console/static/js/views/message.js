// One message, whole: its metadata, its value by its schema, and its bytes.
import { curl, get, partitionPath } from "../api.js";
import { pretty, time } from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useState } from "../lib.js";
import { Command, Copy, Problem } from "../ui.js";

// The request that reads just this message.
const wanted = (message) =>
  message.offset == null
    ? { publish_time: message.publishTime, max_messages: 1 }
    : { offset: message.offset, end_offset: message.offset + 1, max_messages: 1 };

export function Message({ name, message, href }) {
  const [raw, setRaw] = useState(false);
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
        <${Copy} text=${pretty(message.value) ?? ""} label="Copy the value" />
        <a href=${href}>Link to this message</a>
      </div>
      ${message.error && html`<p class="problem">${message.error}</p>`}
      ${raw ? html`<${Raw} path=${path} message=${message} />` : html`<pre class="value"><code>${pretty(message.value) ?? "null"}</code></pre>`}
      <${Command} text=${curl("GET", `${path}/messages`, { values: wanted(message) })} />
    </article>`;
}

function Raw({ path, message }) {
  const load = useLoad(async (signal) => {
    const answer = await get(`${path}/messages`, { ...wanted(message), encoding: "base64" }, signal);
    return answer.messages.find((each) => each.messageId === message.messageId) ?? answer.messages[0];
  }, [message.messageId]);
  if (load.error) return html`<${Problem} error=${load.error} />`;
  if (!load.value) return html`<p class="loading">Loading the bytes …</p>`;
  const bytes = Uint8Array.from(atob(load.value.value ?? ""), (each) => each.charCodeAt(0));
  return html`<pre class="value"><code>${hexDump(bytes.subarray(0, 4096))}</code></pre>${bytes.length > 4096 && html`<p class="dim">The first 4,096 of ${bytes.length} bytes.</p>`}`;
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
