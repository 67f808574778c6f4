// Messages of a topic: from a place on, over its partitions, with filters; downloads of a range.
import { curl, get, partitionPath } from "../api.js";
import { count, oneLine, time } from "../format.js";
import { makeFilter } from "../filter.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { go, topicLink } from "../router.js";
import { Copy, Empty, Field, Problem } from "../ui.js";
import { browse, download, SCAN_MAX } from "../reading.js";
import { Message } from "./message.js";

const PLACES = [["latest", "newest first"], ["earliest", "oldest first"], ["offset", "from an offset"], ["time", "from a time"], ["id", "after a message id"]];

export function Messages({ name, topic, route, server }) {
  const numbered = server.capabilities.includes("offsets");
  const values = { from: numbered ? "latest" : "earliest", at: "", partition: "", limit: "50", key: "", property: "", text: "", where: "", open: "", ...route.values };
  const [draft, setDraft] = useState(values); // what the form holds, until it is submitted
  const [state, set] = useState({ messages: [], error: null, busy: true, scanned: 0, ended: false });
  const running = useRef(null);
  const shown = JSON.stringify({ ...values, open: "" });

  useEffect(() => {
    setDraft(values);
    load();
    return () => running.current?.abort();
  }, [name, shown]);

  async function load() {
    running.current?.abort();
    const controller = new AbortController();
    running.current = controller;
    set({ messages: [], error: null, busy: true, scanned: 0, ended: false });
    const progress = (messages, scanned) => {
      if (running.current === controller) set((before) => ({ ...before, messages, scanned }));
    };
    try {
      const filter = makeFilter({ key: values.key, property: values.property, text: values.text, condition: values.where });
      const found = await browse({ name, partitions: topic.partitions, values, filter, signal: controller.signal, progress });
      if (running.current === controller) set({ ...found, error: null, busy: false });
    } catch (error) {
      if (error.name !== "AbortError" && running.current === controller) set((before) => ({ ...before, error, busy: false }));
    }
  }

  const change = (more) => go(["topic", name, "messages"], { ...route.values, open: undefined, ...more }, true);
  const submitted = (event) => {
    event.preventDefault();
    const { open: _, ...wanted } = draft;
    change(wanted);
  };
  const field = (name) => ({ name, value: draft[name], onInput: (event) => setDraft({ ...draft, [name]: event.target.value }) });
  const path = `${partitionPath(name, values.partition || 0)}/messages`;
  const places = numbered ? PLACES : PLACES.filter(([place]) => !["latest", "offset"].includes(place));
  return html`
    <form class="toolbar" onSubmit=${submitted} key=${name}>
      <${Field} label="Show">
        <select name="from" value=${draft.from} onChange=${(event) => setDraft({ ...draft, from: event.target.value, at: "" })}>
          ${places.map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}
        </select>
      </${Field}>
      ${draft.from === "offset" && html`<${Field} label="Offset"><input ...${field("at")} type="number" min="0" required /></${Field}>`}
      ${draft.from === "time" && html`<${Field} label="Time"><input ...${field("at")} type="datetime-local" step="0.001" required /></${Field}>`}
      ${draft.from === "id" && html`<${Field} label="Message id"><input ...${field("at")} required /></${Field}>`}
      ${topic.partitions > 0 && html`<${Field} label="Partition">
        <select ...${field("partition")}><option value="">all</option>
          ${Array.from({ length: topic.partitions }, (_, each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></${Field}>`}
      <${Field} label="Key"><input ...${field("key")} /></${Field}>
      <${Field} label="Property"><input ...${field("property")} placeholder="name=value" /></${Field}>
      <${Field} label="Text"><input ...${field("text")} /></${Field}>
      <${Field} label="JSON path"><input ...${field("where")} placeholder="$.price > 3" /></${Field}>
      <${Field} label="At most"><input ...${field("limit")} type="number" min="1" max="1000" /></${Field}>
      <button class="primary">Show</button>
    </form>
    <div class="buttons">
      ${state.busy
        ? html`<span role="status" class="dim">Reading: ${count(state.scanned)} messages scanned …</span>
            <button type="button" class="small" onClick=${() => { running.current?.abort(); set({ ...state, busy: false }); }}>Stop</button>`
        : html`<span role="status" class="dim">${count(state.messages.length)} shown of ${count(state.scanned)} scanned${state.full ? `; a search scans at most ${count(SCAN_MAX)}` : ""}</span>
            <button type="button" class="small" onClick=${load}>Refresh</button>`}
      <${Copy} text=${curl("GET", path, { values: startOf(values), accept: "application/x-ndjson" })} label="Copy as curl" />
      <${Download} name=${name} partitions=${topic.partitions} values=${values} />
    </div>
    <${Problem} error=${state.error} />
    <${Rows} name=${name} messages=${state.messages} open=${values.open} toggle=${(id) => go(["topic", name, "messages"], { ...route.values, open: values.open === id ? undefined : id }, true)} />
    ${!state.busy && !state.error && !state.messages.length && html`
      <${Empty} title=${topic.messages ? "No message matches" : "No messages yet"} command=${topic.messages ? undefined : curl("POST", partitionPath(name, 0).replace(/\/partitions\/0$/, ""), { body: { messages: [{ value: "hello, world" }] } })}>
        <p>${topic.messages ? "Change the filters, or start from another position." : "Publish one here, or from a terminal:"}</p></${Empty}>`}`;
}

// The parameters of REST that begin where the form says.
export function startOf({ from, at, limit }) {
  const place = { offset: { offset: at }, time: { publish_time: at ? new Date(at).getTime() : 0 }, id: { message_id: at } }[from];
  return { ...place, max_messages: limit };
}

const linkTo = (name, message) =>
  topicLink(name, "messages", {
    ...(message.offset == null ? { from: "time", at: new Date(message.publishTime - new Date().getTimezoneOffset() * 60000).toISOString().slice(0, 23) } : { from: "offset", at: message.offset }),
    partition: message.partition, open: message.messageId,
  });

function Rows({ name, messages, open, toggle }) {
  if (!messages.length) return null;
  return html`
    <div class="scroll"><table class="messages">
      <thead><tr><th scope="col">Published</th><th scope="col" class="number">Partition</th><th scope="col" class="number">Offset</th><th scope="col">Key</th><th scope="col">Value</th></tr></thead>
      <tbody>${messages.map((message) => [
        html`<tr key=${message.messageId} class=${message.error ? "bad" : ""}>
          <td><button type="button" class="plain" aria-expanded=${open === message.messageId} onClick=${() => toggle(message.messageId)}>${time(message.publishTime)}</button></td>
          <td class="number">${message.partition}</td><td class="number">${message.offset ?? "–"}</td>
          <td class="cut"><code>${oneLine(message.key ?? "", 60)}</code></td>
          <td class="cut"><code>${message.error ?? oneLine(message.value, 200)}</code></td></tr>`,
        open === message.messageId && html`<tr key=${`${message.messageId}-open`} class="opened"><td colspan="5"><${Message} name=${name} message=${message} href=${linkTo(name, message)} /></td></tr>`,
      ])}</tbody>
    </table></div>`;
}

function Download({ name, partitions, values }) {
  const [state, set] = useState({ busy: false, count: 0, error: null });
  const start = async () => {
    set({ busy: true, count: 0, error: null });
    try {
      await download({ name, partitions, values: { ...startOf(values), partition: values.partition }, progress: (number) => set((before) => ({ ...before, count: number })) });
      set((before) => ({ ...before, busy: false }));
    } catch (error) {
      set((before) => ({ ...before, busy: false, error }));
    }
  };
  return html`<button type="button" class="small" disabled=${state.busy} onClick=${start}>${state.busy ? `Downloading ${count(state.count)} …` : "Download as NDJSON"}</button><${Problem} error=${state.error} />`;
}
