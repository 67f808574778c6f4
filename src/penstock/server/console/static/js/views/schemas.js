// The versions of a topic's schema: to read, to compare, and to check or register a draft.
import { call, get, post, schemaPath } from "../api.js";
import { sideBySide } from "../diff.js";
import { time } from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useState } from "../lib.js";
import { Empty, Field, Form, Loaded } from "../ui.js";

const TYPES = ["AVRO", "JSON", "STRING", "BYTES", "PROTOBUF_NATIVE", "BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP"];

export function definition(schema) {
  try {
    return JSON.stringify(typeof schema.data === "string" ? JSON.parse(schema.data) : schema.data, null, 2);
  } catch {
    return schema.data;
  }
}

export function Schemas({ name, may, reload }) {
  const load = useLoad(async (signal) => (await get(`${schemaPath(name)}/schemas`, {}, signal)).getSchemaResponses, [name]);
  const changed = () => {
    load.reload();
    reload();
  };
  return html`
    <${Loaded} of=${load}>${(versions) => html`
      <div>
        ${versions.length === 0
          ? html`<${Empty} title="No schema yet"><p>Messages without one are bytes. ${may.produce ? "Register the first version below, or publish with a schema." : "Who may publish registers the first version."}</p></${Empty}>`
          : html`<${Versions} key=${versions.length} versions=${versions} />`}
        <${Draft} may=${may} name=${name} newest=${versions.at(-1)} changed=${changed} />
      </div>`}</${Loaded}>`;
}

// Definitions of {version, type, data} with a `timestamp` or a `note`, two beside each other.
export function Versions({ versions }) {
  const [left, setLeft] = useState(Math.max(0, versions.length - 2));
  const [right, setRight] = useState(versions.length - 1);
  const choice = (label, value, change) => html`
    <${Field} label=${label}><select value=${value} onChange=${(event) => change(Number(event.target.value))}>
      ${versions.map((each, index) => html`<option key=${index} value=${index}>version ${each.version}: ${each.type}, ${each.note ?? time(each.timestamp)}</option>`)}</select></${Field}>`;
  const rows = sideBySide(definition(versions[Math.min(left, versions.length - 1)]) ?? "", definition(versions[Math.min(right, versions.length - 1)]) ?? "");
  if (versions.length === 1) return html`<h2>Version ${versions[0].version}: ${versions[0].type}</h2><pre class="value"><code>${definition(versions[0])}</code></pre>`;
  return html`
    <div class="toolbar">${choice("Left", left, setLeft)}${choice("Right", right, setRight)}</div>
    <div class="scroll"><table class="diff" aria-label="Differences"><tbody>
      ${rows.map((row, index) => html`<tr key=${index}><td class=${row.same ? "" : row.left === null ? "none" : "gone"}>${row.left}</td><td class=${row.same ? "" : row.right === null ? "none" : "new"}>${row.right}</td></tr>`)}
    </tbody></table></div>`;
}

function Draft({ may, name, newest, changed }) {
  const body = ({ type, schema }) => ({ type, schema, properties: {} });
  const [verdict, setVerdict] = useState(null);
  const check = async (form) => {
    try {
      setVerdict(await post(`${schemaPath(name)}/compatibility`, body(form)));
    } catch (error) {
      // Some brokers of Pulsar fail over what does not follow, with a stack trace that says why.
      if (!error.message.includes("IncompatibleSchemaException")) throw error;
      setVerdict({ compatibility: false, reason: error.message.match(/^Message: ([^]*?)\n\nStacktrace:/m)?.[1] ?? error.message });
    }
    return "";
  };
  const submitted = async (values) => {
    if (values.action === "check") return check(values);
    await call("POST", `${schemaPath(name)}/schema`, { body: body(values) });
    setVerdict(null);
    changed();
    return "Registered.";
  };
  const [action, setAction] = useState("check");
  return html`
    <h2>A draft</h2>
    <${Form} submit=${action === "check" ? "Check whether it may follow" : "Register"} action=${submitted}>
      <${Field} label="What to do"><select name="action" value=${action} onChange=${(event) => setAction(event.target.value)}>
        <option value="check">check the compatibility</option>${may.produce && html`<option value="register">register a new version</option>`}</select></${Field}>
      <${Field} label="Type"><select name="type">${TYPES.map((each) => html`<option key=${each} value=${each} selected=${each === (newest?.type ?? "AVRO")}>${each}</option>`)}</select></${Field}>
      <${Field} label="Definition"><textarea name="schema" rows="10" spellcheck=${false}>${newest ? definition(newest) : ""}</textarea></${Field}>
    </${Form}>
    ${verdict && html`<p class=${verdict.compatibility ? "done" : "problem"} role="status">
      ${verdict.compatibility ? "It may follow" : "It may not follow"}${verdict.schemaCompatibilityStrategy ? ` (${verdict.schemaCompatibilityStrategy})` : ""}${verdict.reason ? `: ${verdict.reason}` : "."}</p>`}`;
}
