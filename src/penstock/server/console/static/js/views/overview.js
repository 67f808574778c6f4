// The server at a glance: what goes through it, how fast, what it holds, and how near it is to its bounds.
import { get } from "../api.js";
import { Chart } from "../chart.js";
import { ago, bytes, compact, count, ms, rate } from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useMemo, useState } from "../lib.js";
import { link, topicLink } from "../router.js";
import { Command, Empty, Figure, Loaded, Problem, Table } from "../ui.js";

const SPANS = [[1, "1 h"], [3, "3 h"], [24, "all"]];

export function Overview({ server }) {
  const [hours, setHours] = useState(1);
  const history = useLoad((signal) => get("/console/api/history", { since: Date.now() - hours * 3600e3 }, signal), [hours], 10000);
  const topics = useLoad(
    (signal) => get("/console/api/topics", { namespace: server.namespaces.includes("public/default") ? undefined : server.namespaces[0], sort: "rate_in", descending: true, limit: 5 }, signal),
    [], 10000);
  return html`
    <h1>Overview</h1>
    ${topics.value?.total === 0 && html`<${First} />`}
    ${server.superuser && html`<${Bounds} server=${server} />`}
    ${history.error?.status === 403
      ? html`<p class="dim">Only administrators see the charts of the whole server.</p>`
      : html`
        <h2>Figures over time</h2>
        <div class="buttons" role="group" aria-label="Time shown">
          ${SPANS.map(([value, label]) => html`<button type="button" class="small" aria-pressed=${value === hours} onClick=${() => setHours(value)}>${label}</button>`)}
        </div>
        <${Loaded} of=${history}>${(columns) => html`<${Charts} columns=${columns} />`}</${Loaded}>`}
    ${topics.value?.topics.length > 0 && html`
      <h2>Busiest topics</h2>
      <ul class="plain-list">${topics.value.topics.map((topic) => html`
        <li key=${topic.topic}><a href=${topicLink(topic.topic)}>${topic.topic}</a>
          ${" "}<span class="dim">In/s ${rate(topic.rate_in)}, Out/s ${rate(topic.rate_out)}, backlog ${compact(topic.backlog)}</span></li>`)}</ul>
      <p><a href=${link(["topics"])}>All topics</a></p>`}
    <${Problem} error=${topics.error} />`;
}

const First = () => html`
  <${Empty} title="No topics yet" command=${`curl '${location.origin}/topics/public/default/hello' -d '{"messages": [{"value": "hello, world"}]}'`}>
    <p>The first message creates its topic. Publish one from a terminal, or <a href=${link(["topics"])}>create a topic here</a>.</p>
  </${Empty}>`;

function stateOf({ engine, problem, storage }) {
  if (engine !== "embedded") return problem ? "unreachable" : "connected";
  return storage.failing ? "read-only" : "writable";
}

function Bounds({ server }) {
  const { connections, bytes_in_flight: held } = server.limits;
  const { size, size_max: most, disk_free: free, failing, message } = server.storage;
  const near = [];
  if (connections && connections[0] > 0.8 * connections[1]) near.push(`${count(connections[0])} of at most ${count(connections[1])} connections are open.`);
  if (held && held[0] > 0.8 * held[1]) near.push(`${bytes(held[0])} of at most ${bytes(held[1])} are in flight.`);
  if (most && size > 0.8 * most) near.push(`The storage uses ${bytes(size)} of at most ${bytes(most)}.`);
  if (failing) near.push(message);
  return html`
    <div class="figures">
      <${Figure} label="Engine" value=${server.engine} hint=${server.cluster} />
      ${server.cluster && html`<${Figure} label="Cluster" value=${server.cluster} />`}
      <${Figure} label="State" value=${stateOf(server)} />
      <${Figure} label="Connections" value=${connections ? `${count(connections[0])} of ${count(connections[1])}` : "–"} />
      <${Figure} label="Bytes in flight" value=${held ? `${bytes(held[0])} of ${bytes(held[1])}` : "–"} hint="Memory held for requests, frames and answers" />
      ${size != null && html`<${Figure} label="Storage" value=${most ? `${bytes(size)} of ${bytes(most)}` : bytes(size)} />`}
      ${free != null && html`<${Figure} label="Disk free" value=${bytes(free)} />`}
    </div>
    ${near.map((text) => html`<p class="problem" role="alert">${text}</p>`)}
    <${Failures} failures=${server.failures} />`;
}

// Failing background work: dead letters that cannot be stored, schemas and documents that cannot be read.
function Failures({ failures }) {
  if (!failures?.length) return null;
  return html`
    <h2>Failing now</h2>
    <${Table} caption="Failing background work" rows=${failures} rowKey=${(each) => `${each.kind} ${each.subject}`} columns=${[
      { title: "Kind", cell: (each) => html`<span class="tag">${each.kind.replace("_", " ")}</span>` },
      { title: "Subject", cell: (each) => html`<span class="wrap">${each.subject}</span>` },
      { title: "Reason", cell: (each) => each.message },
      { title: "Since", cell: (each) => ago(each.since_ms) },
      { title: "Attempts", number: true, cell: (each) => count(each.count) },
    ]} />`;
}

function Charts({ columns }) {
  const seconds = useMemo(() => columns.at.map((at) => at / 1000), [columns]);
  const data = (...names) => [seconds, ...names.map((name) => columns[name])];
  if (!seconds.length) return html`<p class="dim">The charts begin within ten seconds.</p>`;
  return html`
    <div class="charts">
      <${Chart} title="Messages/s" series=${["in", "out"]} data=${data("messages_in", "messages_out")} format=${rate} />
      <${Chart} title="Bytes/s" series=${["in", "out"]} data=${data("bytes_in", "bytes_out")} format=${bytes} />
      <${Chart} title="HTTP latency" series=${["p50", "p99"]} data=${data("request_p50", "request_p99")} format=${ms} />
      <${Chart} title="Storage commit latency" series=${["p50", "p99"]} data=${data("commit_p50", "commit_p99")} format=${ms} />
      <${Chart} title="Backlog" series=${["backlog"]} data=${data("backlog")} format=${compact} />
      <${Chart} title="Storage size" series=${["size"]} data=${data("size_bytes")} format=${bytes} />
      <${Chart} title="Connections" series=${["all", "WebSocket", "Pulsar"]} data=${data("connections", "websockets", "binary")} format=${count} />
      <${Chart} title="HTTP requests/s" series=${["requests"]} data=${data("requests")} format=${rate} />
    </div>`;
}
