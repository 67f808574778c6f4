// The last reported batch of each pipeline.
import { get, shortTopic } from "../api.js";
import { ago, count, ms, rate } from "../format.js";
import { useLoad } from "../hooks.js";
import { html } from "../lib.js";
import { topicLink } from "../router.js";
import { Empty, Loaded, Table } from "../ui.js";

const RULES = [
  { title: "Rule", cell: (rule) => `${rule.view}: ${rule.rule}` },
  { title: "Kind", cell: (rule) => rule.kind },
  { title: "Action", cell: (rule) => rule.action },
  { title: "Passed", number: true, cell: (rule) => count(rule.passed) },
  { title: "Failed", number: true, cell: (rule) => count(rule.failed) },
];

const COLUMNS = [
  { title: "Pipeline", cell: (row) => row.pipeline },
  { title: "State", cell: (row) => html`<span class=${`state ${row.state}`}>${row.state}</span>` },
  { title: "Batch", number: true, cell: (row) => row.batch ?? "–" },
  { title: "Rows", number: true, cell: (row) => count(row.rows) },
  { title: "Rows/s", number: true, cell: (row) => rate(row.rows_per_second) },
  { title: "Lag", number: true, cell: (row) => count(row.lag) },
  { title: "Batch took", number: true, cell: (row) => ms(row.batch_ms) },
  { title: "Rejected", number: true, cell: (row) => count(row.rejected) },
  { title: "Rules", cell: (row) => (row.rules?.length ? html`<details><summary>${row.rules.length}</summary><${Table} caption=${`Rules of ${row.pipeline}`} columns=${RULES} rows=${row.rules} rowKey=${(rule) => `${rule.view} ${rule.kind} ${rule.rule}`} /></details>` : "–") },
  { title: "Dead letters", cell: (row) => (row.dead_letter_topic ? html`<a href=${topicLink(row.dead_letter_topic)}>${shortTopic(row.dead_letter_topic)}</a>` : "–") },
  { title: "Spark UI", cell: (row) => (/^https?:\/\//.test(row.ui ?? "") ? html`<a href=${row.ui}>Open</a>` : "–") },
  { title: "Last report", cell: (row) => ago(row.at) },
  { title: "Error", cell: (row) => (row.error ? html`<details><summary class="bad">${row.error_class ?? "error"}</summary><pre class="value">${row.error}</pre></details>` : "") },
];

export function Pipelines() {
  const load = useLoad((signal) => get("/console/api/pipelines", {}, signal), [], 3000);
  return html`
    <h1>Pipelines</h1>
    <${Loaded} of=${load}>${({ topic, pipelines }) => (pipelines.length === 0
      ? html`<${Empty} title="No pipeline has reported here"><p>A declared pipeline reports after each batch:</p>
          <pre><code>penstock pipeline run sales.toml</code></pre></${Empty}>`
      : html`<${Table} caption="Pipelines" columns=${COLUMNS} rows=${pipelines} rowKey=${(row) => row.pipeline} />
          <p class="dim">Reports are messages of <a href=${topicLink(topic)}>${topic}</a>.</p>`)}</${Loaded}>`;
}
