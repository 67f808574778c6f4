// The subscriptions of a topic: consumers, backlog, and operations for administrators.
import { adminPath, get, post, put, remove, shortTopic } from "../api.js";
import { Chart } from "../chart.js";
import { ago, compact, count, rate } from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { peek } from "../peek.js";
import { go, topicLink } from "../router.js";
import { redrive } from "../redrive.js";
import { Action, Empty, Field, Form, Loaded, Table } from "../ui.js";

const KEPT = 300; // points of the lag's chart
const LINES = 8; // of the chart
const PEEK = 10;

const COLUMNS = (name) => [
  { title: "Subscription", cell: ([each]) => html`<a href=${topicLink(name, "subscriptions", { name: each })}>${each}</a>` },
  { title: "Type", cell: ([, one]) => one.type ?? "–" },
  { title: "Consumers", number: true, cell: ([, one]) => one.consumers.length },
  { title: "Backlog", number: true, cell: ([, one]) => count(one.msgBacklog) },
  { title: "Delayed", number: true, cell: ([, one]) => count(one.msgDelayed) },
  { title: "Unacknowledged", number: true, cell: ([, one]) => count(one.unackedMessages) },
  { title: "Out/s", number: true, cell: ([, one]) => rate(one.msgRateOut) },
  { title: "Redelivered", number: true, cell: ([, one]) => count(one.msgRedeliverCounter) },
];

export function Subscriptions({ name, topic, route, may }) {
  const chosen = route.values.name;
  const stats = useLoad(
    (signal) => get(`${adminPath(name)}/${topic.partitions > 0 ? "partitioned-stats" : "stats"}`, {}, signal),
    [name, topic.partitions], 2000);
  const create = async ({ subscription, at }) => {
    await put(`${adminPath(name)}/subscription/${encodeURIComponent(subscription)}`, at);
    await stats.reload();
  };
  return html`
    <${Loaded} of=${stats}>${(value) => {
      const all = Object.entries(value.subscriptions).sort();
      const one = value.subscriptions[chosen];
      if (chosen && one) return html`<${Subscription} name=${name} topic=${topic} may=${may} subscription=${chosen} one=${one} stats=${value} reload=${stats.reload} />`;
      return html`
        <div>
          ${all.length === 0
            ? html`<${Empty} title="No subscriptions yet"><p>A consumer creates its subscription. Create one here to keep new messages:</p></${Empty}>`
            : html`<${Table} caption="Subscriptions" columns=${COLUMNS(name)} rows=${all} rowKey=${([each]) => each} />`}
          <details open=${all.length === 0}><summary>Create a subscription</summary>
            <${Form} submit="Create" action=${create} done="Created.">
              <div class="toolbar"><${Field} label="Name"><input name="subscription" required /></${Field}>
                <${Field} label="Initial position"><select name="at"><option value="latest">latest</option><option value="earliest">earliest</option></select></${Field}></div>
            </${Form}></details>
        </div>`;
    }}</${Loaded}>`;
}

const number = (partition) => Number(partition.split("-").at(-1));
const byNumber = (a, b) => number(a) - number(b);

// The chart of the backlog of each partition, gathered while the page is open; of many, of those with the most of it.
function useLag(stats, subscription) {
  const points = useRef([]);
  return useMemo(() => {
    const partitions = Object.entries(stats.partitions ?? {});
    const logs = partitions.length ? partitions : [["backlog", stats]];
    const now = Object.fromEntries(logs.map(([log, each]) => [log, each.subscriptions[subscription]?.msgBacklog ?? 0]));
    points.current = [...points.current, [Date.now() / 1000, now]].slice(-KEPT);
    const most = Object.keys(now).sort((a, b) => now[b] - now[a] || byNumber(a, b)).slice(0, LINES);
    if (partitions.length) most.sort(byNumber);
    return {
      labels: partitions.length ? most.map((log) => `partition ${number(log)}`) : most,
      data: [points.current.map(([at]) => at), ...most.map((log) => points.current.map(([, there]) => there[log] ?? null))],
    };
  }, [stats, subscription]);
}

function Subscription({ name, topic, may, subscription, one, stats, reload }) {
  const path = `${adminPath(name)}/subscription/${encodeURIComponent(subscription)}`;
  const lag = useLag(stats, subscription);
  const then = (action) => async (values) => {
    await action(values);
    await reload();
    return "Done.";
  };
  const partitions = Object.keys(stats.partitions ?? {}).sort(byNumber);
  const logs = partitions.length ? partitions : [name];
  const reset = ({ at, time, id }) => {
    if (at === "time") return post(`${path}/resetcursor/${new Date(time).getTime()}`);
    return post(`${path}/resetcursor`, at === "id" ? id : at);
  };
  const [at, setAt] = useState("earliest");
  return html`
    <p class="crumbs"><a href=${topicLink(name, "subscriptions")}>Subscriptions</a> /</p>
    <h2 class="wrap">${subscription}</h2>
    <p>${one.type ? html`<span class="tag">${one.type}</span>` : "No consumer is connected."} Backlog: ${count(one.msgBacklog)}; delivered and unacknowledged: ${count(one.unackedMessages)}; redelivered: ${count(one.msgRedeliverCounter)}.</p>
    ${one.deadLettersWaiting > 0 && html`<p class="problem" role="alert">Dead letters that cannot be stored: ${count(one.deadLettersWaiting)}, after ${count(one.deadLettersFailed)} failed attempts. ${one.deadLetterError}</p>`}
    <${Chart} title="Backlog, while this page is open" series=${lag.labels} data=${lag.data} format=${compact} />
    <h3>Consumers</h3>
    ${one.consumers.length === 0 ? html`<p class="dim">No consumer is connected.</p>` : html`<${Table} caption="Consumers" rows=${one.consumers} rowKey=${(each) => each.consumerName + each.address} columns=${[
      { title: "Name", cell: (each) => `${each.consumerName}${each.consumerName === one.activeConsumerName ? " (active)" : ""}` },
      { title: "Address", cell: (each) => each.address },
      { title: "Client", cell: (each) => each.clientVersion },
      { title: "Role", cell: (each) => each.role ?? "–" },
      { title: "Since", cell: (each) => ago(Date.parse(each.connectedSince)) },
      { title: "Delivered", number: true, cell: (each) => count(each.msgOutCounter) },
      { title: "Unacknowledged", number: true, cell: (each) => count(each.unackedMessages) },
      { title: "Permits", number: true, cell: (each) => count(each.availablePermits) },
    ]} />`}
    <h3>Peek</h3>
    <${Peek} name=${name} logs=${logs} subscription=${subscription} backlog=${one.msgBacklog} />
    <h3>Reset the cursor</h3>
    <${Form} submit="Reset" action=${then(reset)}>
      <div class="toolbar">
        <${Field} label="To"><select name="at" value=${at} onChange=${(event) => setAt(event.target.value)}>
          <option value="earliest">the first message</option><option value="latest">after the last message</option><option value="time">a time</option>
          ${topic.partitions === 0 && html`<option value="id">after a message id</option>`}</select></${Field}>
        ${at === "time" && html`<${Field} label="Time"><input name="time" type="datetime-local" step="0.001" required /></${Field}>`}
        ${at === "id" && html`<${Field} label="Message id"><input name="id" required /></${Field}>`}
      </div>
    </${Form}>
    ${topic.partitions === 0 && html`
      <${Form} submit="Skip" action=${then(({ number }) => post(`${path}/skip/${number}`))}>
        <${Field} label="Messages to skip"><input name="number" type="number" min="1" defaultValue="1" required /></${Field}>
      </${Form}>`}
    <div class="buttons">
      <${Action} label="Skip the whole backlog" danger confirm=${`Count all ${count(one.msgBacklog)} messages as acknowledged for ${subscription}?`} action=${then(() => post(`${path}/skip_all`))} />
      <${Action} label="Delete subscription" danger confirm=${`Delete ${subscription}? Its position in the topic is lost${one.consumers.length ? ", and its consumers are disconnected" : ""}.`}
        action=${async () => { await remove(path, { force: one.consumers.length > 0 }); go(["topic", name, "subscriptions"]); }} />
    </div>
    <${DeadLetters} name=${name} subscription=${subscription} mayPublish=${may.produce} />`;
}

function Peek({ name, logs, subscription, backlog }) {
  const [shown, set] = useState(null);
  const look = async () => set(await peek(name, logs, subscription, PEEK));
  return html`
    <${Action} label="Peek" action=${look} disabled=${backlog === 0} />
    ${shown && html`<${Table} caption="The next messages" rows=${shown.map((each, index) => ({ ...each, index }))} rowKey=${(each) => each.index} columns=${[
      { title: "Log", cell: (each) => each.log },
      { title: "Position", number: true, cell: (each) => each.position },
      { title: "Key", cell: (each) => (each.key == null ? "" : html`<code>${typeof each.key === "string" ? each.key : JSON.stringify(each.key)}</code>`) },
      { title: "Value", cell: (each) => html`<code>${typeof each.value === "string" ? each.value : JSON.stringify(each.value)}</code>` },
    ]} />`}`;
}

function DeadLetters({ name, subscription, mayPublish }) {
  const letters = `${name}-${subscription}-DLQ`;
  const load = useLoad(async (signal) => {
    try {
      return await get("/console/api/topic", { topic: letters }, signal);
    } catch (error) {
      if (error.status === 404) return null;
      throw error;
    }
  }, [letters], 5000);
  const may = useLoad((signal) => get("/console/api/permissions", { topic: letters }, signal), [letters]);
  const [moved, setMoved] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => () => setMoved(null), []);
  if (!load.value) return html`<h3>Dead letters</h3><p class="dim">The topic ${shortTopic(letters)} does not exist: there are no dead letters.</p>`;
  const run = async () => {
    setError(null);
    setMoved(await redrive(letters, name, setMoved));
    load.reload();
  };
  return html`
    <h3>Dead letters</h3>
    <p><a href=${topicLink(letters)}>${shortTopic(letters)}</a> holds ${count(load.value.messages)} messages.</p>
    <div class="buttons">
      ${mayPublish && may.value?.consume && html`<${Action} label="Republish" confirm=${`Publish the remaining messages of ${shortTopic(letters)} to ${shortTopic(name)}? Each is acknowledged once it is published; after an interruption a message may be published twice.`} action=${run} />`}
      ${may.value?.admin && html`<${Action} label="Purge" danger confirm=${`Delete all ${count(load.value.messages)} messages of ${shortTopic(letters)}?`} action=${async () => { await remove(`${adminPath(letters)}/truncate`); load.reload(); }} />`}
      ${moved !== null && html`<span class="done" role="status">${count(moved)} republished.</span>`}
      ${error}
    </div>`;
}
