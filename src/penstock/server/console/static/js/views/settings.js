// What an administrator changes of a topic: retention, policies, partitions, properties, and its end.
import { adminPath, call, get, post, put, remove, shortTopic } from "../api.js";
import { count } from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useState } from "../lib.js";
import { go } from "../router.js";
import { Action, Field, Form, Loaded, Problem } from "../ui.js";

// Policies by their path: how the server shows them, and an example of what it takes.
const POLICIES = [
  ["retention", { retentionTimeInMinutes: 1440, retentionSizeInMB: 1024 }, "how long acknowledged messages are kept; -1: no limit"],
  ["messageTTL", 3600, "seconds after which unacknowledged messages expire"],
  ["maxProducers", 10, "producers at once"],
  ["maxConsumers", 10, "consumers at once"],
  ["maxUnackedMessagesOnConsumer", 1000, "unacknowledged messages of one Shared consumer"],
  ["publishRate", { publishThrottlingRateInMsg: 1000, publishThrottlingRateInByte: -1 }, "published messages and bytes per second"],
  ["dispatchRate", { dispatchThrottlingRateInMsg: 1000, dispatchThrottlingRateInByte: -1, ratePeriodInSecond: 1 }, "delivered messages and bytes per second"],
  ["subscriptionDispatchRate", { dispatchThrottlingRateInMsg: 1000, dispatchThrottlingRateInByte: -1, ratePeriodInSecond: 1 }, "delivered messages and bytes per second, for each subscription"],
  ["deduplicationEnabled", true, "whether repeated messages of a producer are stored once"],
  ["compactionThreshold", 104857600, "bytes published since the last compaction"],
];

// What an engine does not have (docs/clusters.md): policies and actions, by their path.
const MISSING = { kafka: ["messageTTL", "deduplicationEnabled", "compaction", "trim", "terminate"] };

export function Settings({ name, topic, reload, server }) {
  const missing = MISSING[server.engine] ?? [];
  const path = adminPath(name);
  const then = (action) => async (values) => {
    await action(values);
    reload();
    return "Done.";
  };
  const left = async () => {
    await remove(topic.partitions > 0 ? `${path}/partitions` : path, { force: true });
    go(["topics"]);
  };
  return html`
    <h2>Policies</h2>
    <p class="dim">The topic's policies override those of its namespace, which override the server's configuration.</p>
    <${Policies} path=${path} missing=${missing} />
    <h2>Partitions</h2>
    ${topic.partitions > 0
      ? html`<${Form} submit="Add partitions" action=${then(({ number }) => post(`${path}/partitions`, Number(number)))}>
          <${Field} label="Partitions" hint="The number can only grow. Keys may move to other partitions."><input name="number" type="number" min=${topic.partitions + 1} defaultValue=${topic.partitions + 1} required /></${Field}></${Form}>`
      : html`<p class="dim">The topic is not partitioned.</p>`}
    <h2>Properties</h2>
    <${Form} submit="Save" action=${then(({ properties }) => put(`${path}/properties`, JSON.parse(properties)))}>
      <${Field} label="JSON"><textarea name="properties" rows="3" spellcheck=${false} defaultValue=${JSON.stringify(topic.properties, null, 2)}></textarea></${Field}>
    </${Form}>
    <h2>Actions</h2>
    <div class="buttons">
      ${!missing.includes("compaction") && html`<${Action} label="Compact" action=${then(() => put(`${path}/compaction`))} />`}
      ${!missing.includes("trim") && html`<${Action} label="Trim" confirm="Delete acknowledged messages that the retention policy does not keep?" action=${then(() => post(`${path}/trim`))} />`}
      <${Action} label="Disconnect clients" confirm="Disconnect all producers and consumers? Pulsar's clients reconnect." action=${then(() => put(`${path}/unload`))} />
      ${!topic.terminated && !missing.includes("terminate") && html`<${Action} label="Terminate" danger confirm=${`Terminate ${shortTopic(name)}? It takes no more messages. This cannot be undone.`} action=${then(() => post(topic.partitions > 0 ? `${path}/terminate/partitions` : `${path}/terminate`))} />`}
      <${Action} label="Truncate" danger confirm=${`Delete all ${count(topic.messages)} messages of ${shortTopic(name)}, acknowledged or not?`} action=${then(() => remove(`${path}/truncate`))} />
      <${Action} label="Delete topic" danger confirm=${`Delete ${shortTopic(name)} with its ${count(topic.messages)} messages, subscriptions and schemas? This cannot be undone.`} action=${left} />
    </div>`;
}

function Policies({ path, missing }) {
  const policies = POLICIES.filter(([policy]) => !missing.includes(policy));
  const load = useLoad(async (signal) => {
    const values = await Promise.all(policies.map(async ([policy]) => {
      try {
        return [await get(`${path}/${policy}`, {}, signal), await get(`${path}/${policy}`, { applied: true }, signal)];
      } catch (error) {
        if (error.name === "AbortError") throw error;
        return error;
      }
    }));
    return policies.map(([policy, example, what], index) => ({ policy, example, what, own: values[index][0], applied: values[index][1], error: values[index] instanceof Error ? values[index] : null }));
  }, [path]);
  return html`
    <${Loaded} of=${load}>${(rows) => html`
      <div class="scroll"><table><thead><tr><th scope="col">Policy</th><th scope="col">Topic</th><th scope="col">Effective</th><th scope="col">Change</th></tr></thead>
        <tbody>${rows.map((row) => html`<${Policy} key=${row.policy} path=${`${path}/${row.policy}`} row=${row} reload=${load.reload} />`)}</tbody></table></div>`}</${Loaded}>`;
}

const shown = (value) => (value === null || value === undefined ? html`<span class="dim">not set</span>` : html`<code>${JSON.stringify(value)}</code>`);

function Policy({ path, row, reload }) {
  const [draft, set] = useState(null);
  const save = async () => {
    await call("POST", path, { body: JSON.parse(draft) });
    set(null);
    await reload();
  };
  return html`
    <tr>
      <td><strong>${row.policy}</strong><br /><small class="dim">${row.what}</small></td>
      ${row.error
        ? html`<td colspan="3"><${Problem} error=${row.error} /></td>`
        : html`<td>${shown(row.own)}</td><td>${shown(row.applied)}</td>
          <td>${draft === null
            ? html`<button type="button" class="small" onClick=${() => set(JSON.stringify(row.own ?? row.example))} aria-label=${`Change ${row.policy}`}>Change</button>
                ${row.own != null && html`<${Action} label="Remove" action=${async () => { await remove(path); await reload(); }} />`}`
            : html`<input aria-label=${row.policy} value=${draft} onInput=${(event) => set(event.target.value)} />
                <${Action} label="Save" action=${save} /><button type="button" onClick=${() => set(null)}>Cancel</button>`}</td>`}
    </tr>`;
}
