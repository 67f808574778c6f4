// The topics of a namespace, searched and sorted by the server, a page at a time.
import { get, put } from "../api.js";
import { ago, bytes, compact, count, rate } from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useEffect, useState } from "../lib.js";
import { go, topicLink } from "../router.js";
import { Dialog, Empty, Field, Form, Loaded, Table } from "../ui.js";

const PAGE = 50;
const local = (name) => name.split("/").slice(4).join("/");

const COLUMNS = [
  { title: "Topic", sort: "name", cell: (row) => html`<a href=${topicLink(row.topic)}>${local(row.topic)}</a>${row.topic.startsWith("non-") ? html` <span class="tag">in memory</span>` : ""}` },
  { title: "Partitions", number: true, cell: (row) => row.partitions || "–" },
  { title: "Messages", sort: "messages", number: true, cell: (row) => count(row.messages) },
  { title: "Size", sort: "size_bytes", number: true, cell: (row) => bytes(row.size_bytes) },
  { title: "In/s", sort: "rate_in", number: true, cell: (row) => rate(row.rate_in) },
  { title: "Out/s", sort: "rate_out", number: true, cell: (row) => rate(row.rate_out) },
  { title: "Backlog", sort: "backlog", number: true, cell: (row) => compact(row.backlog) },
  { title: "Subscriptions", sort: "subscriptions", number: true, cell: (row) => row.subscriptions },
  { title: "Producers", sort: "producers", number: true, cell: (row) => row.producers },
  { title: "Consumers", sort: "consumers", number: true, cell: (row) => row.consumers },
  { title: "Last publish", sort: "last_publish", cell: (row) => (row.last_publish ? ago(row.last_publish) : "–") },
];

export function Topics({ route, server }) {
  const { namespace = server.namespaces.includes("public/default") ? "public/default" : server.namespaces[0], search = "", sort = "name", down = "", start = "0" } = route.values;
  const [creating, setCreating] = useState(false);
  const page = useLoad(
    (signal) => get("/console/api/topics", { namespace, search, sort, descending: down ? true : undefined, start, limit: PAGE }, signal),
    [namespace, search, sort, down, start], 5000);
  const change = (values) => go(["topics"], { namespace, search, sort, down, start: undefined, ...values }, true);
  const onSort = (name) => change({ sort: name, down: name === sort ? (down ? "" : "1") : name === "name" ? "" : "1" });
  if (!namespace) return html`<h1>Topics</h1><${Empty} title="No namespace is visible to your role"><p>An administrator grants permissions: see the security documentation.</p></${Empty}>`;
  return html`
    <h1>Topics</h1>
    <div class="toolbar">
      <${Field} label="Namespace">
        <select value=${namespace} onChange=${(event) => change({ namespace: event.target.value })}>
          ${server.namespaces.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
        </select>
      </${Field}>
      <${Search} value=${search} change=${(text) => change({ search: text })} />
      ${server.administered.includes(namespace) && html`<button type="button" class="primary" onClick=${() => setCreating(true)}>Create topic</button>`}
    </div>
    ${creating && html`<${Create} namespace=${namespace} close=${() => setCreating(false)} created=${page.reload} />`}
    <${Loaded} of=${page}>${({ total, matched, topics }) => (total === 0
      ? html`<${Empty} title="No topics here yet" command=${`curl '${location.origin}/topics/${namespace}/hello' -d '{"messages": [{"value": "hello, world"}]}'`}>
          <p>The first message creates its topic:</p></${Empty}>`
      : html`
        <p class="dim" role="status">${matched === total ? `${count(total)} topics` : `${count(matched)} of ${count(total)} topics`}</p>
        <${Table} caption="Topics" columns=${COLUMNS} rows=${topics} rowKey=${(row) => row.topic} sort=${sort} descending=${down !== ""} onSort=${onSort} />
        <${Pages} start=${Number(start)} matched=${matched} go=${(first) => change({ start: first || undefined })} />`)}</${Loaded}>`;
}

// Waits until the person stops typing.
export function Search({ value, change, placeholder = "part of a name" }) {
  const [text, set] = useState(value);
  useEffect(() => {
    if (text === value) return undefined;
    const timer = setTimeout(() => change(text), 250);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<${Field} label="Search"><input type="search" value=${text} placeholder=${placeholder} onInput=${(event) => set(event.target.value)} /></${Field}>`;
}

const Pages = ({ start, matched, go: show }) => matched > PAGE && html`
  <div class="buttons">
    <button type="button" disabled=${start === 0} onClick=${() => show(Math.max(0, start - PAGE))}>Previous</button>
    <span class="dim">${start + 1} to ${Math.min(matched, start + PAGE)}</span>
    <button type="button" disabled=${start + PAGE >= matched} onClick=${() => show(start + PAGE)}>Next</button>
  </div>`;

function Create({ namespace, close, created }) {
  const create = async ({ name, partitions, domain }) => {
    const path = `/admin/v2/${domain}/${namespace}/${encodeURIComponent(name)}`;
    if (Number(partitions) > 0) await put(`${path}/partitions`, Number(partitions));
    else await put(path, {});
    created();
    close();
  };
  return html`
    <${Dialog} title="Create topic" close=${close}>
      <${Form} submit="Create" action=${create}>
        <${Field} label="Name"><input name="name" required autofocus /></${Field}>
        <${Field} label="Partitions" hint="0: not partitioned. Partitions can be added later."><input name="partitions" type="number" min="0" defaultValue="0" /></${Field}>
        <${Field} label="Storage"><select name="domain"><option value="persistent">on disk</option><option value="non-persistent">in memory only</option></select></${Field}>
      </${Form}>
    </${Dialog}>`;
}
