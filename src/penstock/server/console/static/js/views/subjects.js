// The schema registry: its subjects, and one subject with its versions.
import { get, post, put, remove } from "../api.js";
import { useLoad } from "../hooks.js";
import { html, useState } from "../lib.js";
import { go, link, topicLink } from "../router.js";
import { Action, Dialog, Empty, Field, Figure, Form, Loaded, Table } from "../ui.js";
import { Versions } from "./schemas.js";
import { Search } from "./topics.js";

const PAGE = 50;
const REGISTRY = "/registry";
const TYPES = ["AVRO", "JSON", "PROTOBUF"];
const LEVELS = ["NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"];

const subjectPath = (subject) => `${REGISTRY}/subjects/${encodeURIComponent(subject)}`;
const configPath = (subject) => `${REGISTRY}/config/${encodeURIComponent(subject)}`;
const typeOf = (schema) => schema.schemaType ?? "AVRO";
const levelOf = async (subject, signal) => (await get(configPath(subject), { defaultToGlobal: true }, signal)).compatibilityLevel;

// The topic whose schemas a subject has, or null.
export function topicOf(subject) {
  if (!subject.endsWith("-value") || subject.startsWith(":")) return null;
  const name = subject.slice(0, -"-value".length);
  return name.includes("/") ? name : `persistent://public/default/${name}`;
}

// `name subject version` a line, as references.
export function parseReferences(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const [name, subject, version, ...more] = line.split(/\s+/);
    if (!subject || more.length || !/^(-1|[1-9]\d*)$/.test(version)) throw new Error(`A reference is a name, a subject and a version: '${line}' is not.`);
    return { name, subject, version: Number(version) };
  });
}

const References = ({ of }) => (of?.length
  ? html`<ul class="plain-list">${of.map((each) => html`<li key=${each.name}>${each.name}: <a href=${link(["schemas", each.subject])}>${each.subject}</a>, version ${each.version}</li>`)}</ul>`
  : "–");

const COLUMNS = [
  { title: "Subject", cell: (row) => html`<a href=${link(["schemas", row.subject])}>${row.subject}</a>` },
  { title: "Newest version", number: true, cell: (row) => row.version },
  { title: "Id", number: true, cell: (row) => row.id },
  { title: "Type", cell: typeOf },
  { title: "Compatibility", cell: (row) => row.level },
  { title: "References", cell: (row) => html`<${References} of=${row.references} />` },
];

export function Subjects({ route }) {
  const subject = route.path[1];
  return subject === undefined ? html`<${List} values=${route.values} />` : html`<${Subject} key=${subject} subject=${subject} />`;
}

function List({ values }) {
  const { search = "", start = "0" } = values;
  const [registering, setRegistering] = useState(false);
  const load = useLoad(async (signal) => {
    const asked = { subjectPrefix: `:*:${search}`, latestOnly: true, offset: start, limit: PAGE + 1 };
    const found = await get(`${REGISTRY}/schemas`, asked, signal);
    const rows = found.slice(0, PAGE);
    const levels = await Promise.all(rows.map((row) => levelOf(row.subject, signal)));
    const gone = await get(`${REGISTRY}/subjects`, { subjectPrefix: `:*:${search}`, deletedOnly: true }, signal);
    return { rows: rows.map((row, index) => ({ ...row, level: levels[index] })), more: found.length > PAGE, gone };
  }, [search, start]);
  const change = (next) => go(["schemas"], { search, ...next }, true);
  return html`
    <h1>Schemas</h1>
    <div class="toolbar">
      <${Search} value=${search} placeholder="how a subject begins" change=${(text) => change({ search: text })} />
      <button type="button" class="primary" onClick=${() => setRegistering(true)}>Register a schema</button>
    </div>
    ${registering && html`<${Dialog} title="Register a schema" close=${() => setRegistering(false)}>
      <${Draft} changed=${(subject) => go(["schemas", subject])} /></${Dialog}>`}
    <${Loaded} of=${load}>${({ rows, more, gone }) => html`
      <div>
        ${rows.length === 0
          ? html`<${Empty} title="No subjects here"><p>The first schema of a topic, or one that a client registers below <code>${location.origin}${REGISTRY}</code>, makes its subject.</p></${Empty}>`
          : html`<${Table} caption="Subjects" columns=${COLUMNS} rows=${rows} rowKey=${(row) => row.subject} />`}
        ${(Number(start) > 0 || more) && html`<div class="buttons">
          <button type="button" disabled=${Number(start) === 0} onClick=${() => change({ start: Math.max(0, Number(start) - PAGE) || undefined })}>Previous</button>
          <button type="button" disabled=${!more} onClick=${() => change({ start: Number(start) + PAGE })}>Next</button></div>`}
        ${gone.length > 0 && html`<h2>Deleted, not permanently</h2>
          <ul class="plain-list">${gone.map((each) => html`<li key=${each}><a href=${link(["schemas", each])}>${each}</a></li>`)}</ul>`}
      </div>`}</${Loaded}>`;
}

// The versions of a subject with the softly deleted ones, its level, and its own level or null.
async function loadSubject(subject, signal) {
  const every = await get(`${REGISTRY}/schemas`, { subjectPrefix: subject, deleted: true }, signal);
  const live = await get(`${subjectPath(subject)}/versions`, {}, signal).catch((error) => {
    if (error.code !== 40401) throw error;
    return [];
  });
  const own = await get(configPath(subject), {}, signal).catch((error) => {
    if (error.code !== 40408) throw error;
    return null;
  });
  return {
    versions: every.filter((each) => each.subject === subject).map((each) => ({ ...each, deleted: !live.includes(each.version) })),
    level: await levelOf(subject, signal),
    own: own?.compatibilityLevel ?? "",
  };
}

function Subject({ subject }) {
  const load = useLoad((signal) => loadSubject(subject, signal), [subject]);
  const topic = topicOf(subject);
  return html`
    <p class="crumbs"><a href="#/schemas">Schemas</a> /</p>
    <h1 class="wrap">${subject}</h1>
    <${Loaded} of=${load}>${({ versions, level, own }) => {
      const live = versions.filter((each) => !each.deleted);
      return html`
      <div>
        <div class="figures">
          <${Figure} label="Versions" value=${live.length} />
          <${Figure} label="Type" value=${live.length ? typeOf(live.at(-1)) : "none"} />
          <${Figure} label="Compatibility" value=${level} hint=${own ? "Set for this subject" : "Inherited"} />
          ${topic && html`<${Figure} label="Topic" value=${html`<a href=${topicLink(topic)}>${topic}</a>`} />`}
        </div>
        ${versions.length === 0
          ? html`<${Empty} title="No versions"><p>Register the first one below.</p></${Empty}>`
          : html`<${VersionTable} subject=${subject} versions=${versions} changed=${load.reload} />
            <${Versions} key=${versions.length} versions=${versions.map((each) => ({ version: each.version, type: typeOf(each), data: each.schema, note: `id ${each.id}${each.deleted ? ", deleted" : ""}` }))} />`}
        <h2>A draft</h2>
        <${Draft} subject=${subject} newest=${live.at(-1)} changed=${load.reload} />
        <h2>Compatibility</h2>
        <${Level} subject=${subject} own=${own} changed=${load.reload} />
        ${versions.length > 0 && html`<h2>Delete</h2><div class="buttons">${live.length
          ? html`<${Action} danger label="Delete the subject" confirm=${`Delete all ${live.length} versions of ${subject}? They stay readable by their ids${topic ? ", and the schema of the topic is deleted" : ""}.`}
              action=${async () => { await remove(subjectPath(subject)); load.reload(); }} />`
          : html`<${Action} danger label="Delete the subject permanently" confirm=${`Delete ${subject} for good? Its ids no longer lead to a schema.`}
              action=${async () => { await remove(subjectPath(subject), { permanent: true }); go(["schemas"]); }} />`}</div>`}
      </div>`;
    }}</${Loaded}>`;
}

function VersionTable({ subject, versions, changed }) {
  const deletion = (row) => async () => {
    await remove(`${subjectPath(subject)}/versions/${row.version}`, row.deleted ? { permanent: true } : {});
    changed();
  };
  const columns = [
    { title: "Version", number: true, cell: (row) => row.version },
    { title: "Id", number: true, cell: (row) => row.id },
    { title: "Type", cell: typeOf },
    { title: "References", cell: (row) => html`<${References} of=${row.references} />` },
    { title: "State", cell: (row) => (row.deleted ? html`<span class="tag">deleted</span>` : "") },
    { title: "Delete", cell: (row) => html`<${Action} danger label=${row.deleted ? "Permanently" : "Delete"} action=${deletion(row)}
        confirm=${row.deleted ? `Delete version ${row.version} for good?` : `Delete version ${row.version}? It stays readable by its id.`} />` },
  ];
  return html`<${Table} caption="Versions" columns=${columns} rows=${versions} rowKey=${(row) => row.version} />`;
}

function Level({ subject, own, changed }) {
  const chosen = async ({ level }) => {
    if (level) await put(configPath(subject), { compatibility: level });
    else if (own) await remove(configPath(subject));
    changed();
    return "Set.";
  };
  return html`
    <${Form} submit="Set" action=${chosen}>
      <${Field} label="Level"><select name="level">
        <option value="" selected=${!own}>inherited</option>
        ${LEVELS.map((each) => html`<option key=${each} value=${each} selected=${each === own}>${each}</option>`)}</select></${Field}>
    </${Form}>`;
}

function Draft({ subject, newest, changed }) {
  const [verdict, setVerdict] = useState(null);
  const [action, setAction] = useState("check");
  const submitted = async ({ name, type, schema, references }) => {
    const target = subject ?? name;
    const body = { schemaType: type, schema, references: parseReferences(references) };
    setVerdict(null);
    if (action === "check") {
      setVerdict(await post(`${REGISTRY}/compatibility/subjects/${encodeURIComponent(target)}/versions`, body, { verbose: true }));
      return "";
    }
    const { id } = await post(`${subjectPath(target)}/versions`, body);
    changed(target);
    return `Registered: id ${id}.`;
  };
  const lines = (newest?.references ?? []).map((each) => `${each.name} ${each.subject} ${each.version}`).join("\n");
  return html`
    <${Form} submit=${action === "check" ? "Check whether it may follow" : "Register"} action=${submitted}>
      ${subject === undefined && html`<${Field} label="Subject" hint="TOPIC-value has the schemas of a topic."><input name="name" required autofocus /></${Field}>`}
      <${Field} label="What to do"><select value=${action} onChange=${(event) => setAction(event.target.value)}>
        <option value="check">check the compatibility</option><option value="register">register</option></select></${Field}>
      <${Field} label="Type"><select name="type">${TYPES.map((each) => html`<option key=${each} value=${each} selected=${newest && each === typeOf(newest)}>${each}</option>`)}</select></${Field}>
      <${Field} label="Definition"><textarea name="schema" rows="8" required spellcheck=${false}>${newest?.schema ?? ""}</textarea></${Field}>
      <${Field} label="References" hint="A name, a subject and a version a line."><textarea name="references" rows="2" spellcheck=${false}>${lines}</textarea></${Field}>
    </${Form}>
    ${verdict && html`<p class=${verdict.is_compatible ? "done" : "problem"} role="status">
      ${verdict.is_compatible ? "It may follow." : `It may not follow: ${(verdict.messages ?? []).join("; ")}`}</p>`}`;
}
