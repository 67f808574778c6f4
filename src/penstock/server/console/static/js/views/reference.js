// The HTTP interface from its OpenAPI document: searched, read, and tried under the person's own credentials.
import { checkPath, curl, errorOf, get, headersOf, query } from "../api.js";
import { pretty } from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useMemo, useState } from "../lib.js";
import { go } from "../router.js";
import { Command, Field, Form, Loaded } from "../ui.js";

const SHOWN_MAX = 65536; // characters of an answer
const TAGS = { produce: "Publish", read: "Read", consume: "Consume", request: "Request and reply", stage: "Staged publishing", "kafka rest": "Kafka REST", admin: "Administration", console: "Console", health: "Health" };

// Operations by tag; the same under another spelling of its path (the shipped dialect) is folded into the first.
export function operationsOf(document) {
  const found = new Map();
  for (const [path, item] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      if (!operation.responses) continue;
      const plain = path.replace(/^\/topics\/\{domain\}/, "/topics").replace("/consumers/", "/consumer/");
      const key = `${method} ${plain}`;
      const known = found.get(key);
      if (known) known.also.push(path);
      else found.set(key, { method: method.toUpperCase(), path, also: [], operation, tag: operation.tags?.[0] ?? "other" });
    }
  }
  return [...found.values()];
}

export function Reference({ route }) {
  const { search = "", open = "" } = route.values;
  const load = useLoad(async (signal) => get("/openapi.json", {}, signal), []);
  return html`
    <h1>HTTP API</h1>
    <p>Each operation can be tried here, under the credentials of this page. The same for programs: <a href="/openapi.json">/openapi.json</a>; WebSockets: <a href="/asyncapi.json">/asyncapi.json</a>.</p>
    <${Field} label="Search"><input type="search" value=${search} placeholder="subscription, PUT, retention …" onInput=${(event) => go(["reference"], { search: event.target.value }, true)} /></${Field}>
    <${Loaded} of=${load}>${(document) => html`<${Operations} document=${document} search=${search} open=${open} />`}</${Loaded}>`;
}

function Operations({ document, search, open }) {
  const all = useMemo(() => operationsOf(document), [document]);
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = all.filter(({ method, path, also, operation }) => {
    const text = `${method} ${path} ${also.join(" ")} ${operation.summary} ${operation.description ?? ""}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const tags = [...new Set(matching.map(({ tag }) => tag))];
  return html`
    <p class="dim" role="status">${matching.length} of ${all.length} operations</p>
    ${tags.map((tag) => html`
      <section key=${tag}><h2>${TAGS[tag] ?? tag}</h2>
        ${matching.filter((each) => each.tag === tag).map((each) => html`
          <${Operation} key=${each.operation.operationId} document=${document} about=${each} open=${open === each.operation.operationId}
            toggle=${(shown) => go(["reference"], { search, open: shown ? each.operation.operationId : undefined }, true)} />`)}
      </section>`)}`;
}

function Operation({ document, about, open, toggle }) {
  const { method, path, also, operation } = about;
  return html`
    <details class="operation" open=${open} onToggle=${(event) => event.currentTarget.open !== open && toggle(event.currentTarget.open)}>
      <summary><span class=${`method ${method.toLowerCase()}`}>${method}</span> <code>${path}</code> <span class="dim"><${Prose} text=${operation.summary} /></span></summary>
      ${open && html`
        <div class="inside">
          ${operation.description && html`<p><${Prose} text=${operation.description} /></p>`}
          ${also.map((each) => html`<p class="dim">Also <code>${each}</code>, the dialect that Pulsar shipped.</p>`)}
          <${Try} document=${document} about=${about} />
          <h3>Answers</h3>
          <dl class="answers">${Object.entries(operation.responses).map(([status, response]) => html`
            <dt>${status}</dt><dd>${response.description} ${Object.entries(response.content ?? {}).map(([kind, content]) => html`<span class="dim">${kind}</span> <${Shape} document=${document} schema=${content.schema} />`)}</dd>`)}</dl>
        </div>`}
    </details>`;
}

// A text with what stands between backticks as code.
const Prose = ({ text }) => text.split("`").map((part, index) => (index % 2 ? html`<code>${part}</code>` : part));

const GUESS = { tenant: "public", namespace: "default", topic: "hello", domain: "persistent", partition: "0", subscription: "sub" };

function Try({ document, about }) {
  const { method, path, operation } = about;
  const parameters = operation.parameters ?? [];
  const media = Object.keys(operation.requestBody?.content ?? {})[0];
  const content = media && operation.requestBody.content[media];
  const [answer, set] = useState(null);

  const filled = (values) => {
    const given = (where) => parameters.filter((each) => each.in === where).map((each) => [each.name, values[`${where}:${each.name}`] ?? ""]);
    const url = given("path").reduce((text, [name, value]) => text.replace(`{${name}}`, encodeURIComponent(value)), path);
    const headers = Object.fromEntries(given("header").filter(([, value]) => value !== ""));
    return { url, values: Object.fromEntries(given("query")), headers, body: values.body };
  };
  const send = async (values) => {
    const request = filled(values);
    checkPath(request.url);
    const started = performance.now();
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(), 30000);
    try {
      const response = await fetch(request.url + query(request.values), {
        method,
        credentials: "omit",
        signal: controller.signal,
        headers: headersOf({ ...request.headers, ...(request.body ? { "content-type": media } : {}) }),
        body: request.body || undefined,
      });
      const text = response.ok ? await readSome(response) : (await errorOf(response)).message;
      set({ status: response.status, took: performance.now() - started, text, headers: [...response.headers], command: commandOf(method, request) });
    } finally {
      clearTimeout(timer);
      controller.abort();
    }
  };
  return html`
    <${Form} submit=${method === "GET" || method === "HEAD" ? "Try it" : `Send ${method}`} action=${send}>
      <div class="toolbar">${parameters.map((each) => html`
        <${Field} key=${each.in + each.name} label=${`${each.name}${each.required ? "" : " (optional)"}`} hint=${[each.in === "path" ? "" : each.in, each.description].filter(Boolean).join(": ")}>
          ${each.schema?.enum
            ? html`<select name=${`${each.in}:${each.name}`}>${!each.required && html`<option value=""></option>`}${each.schema.enum.map((one) => html`<option key=${one} value=${one} selected=${each.required && one === GUESS[each.name]}>${one}</option>`)}</select>`
            : html`<input name=${`${each.in}:${each.name}`} required=${each.required} defaultValue=${each.required ? GUESS[each.name] ?? "" : ""} placeholder=${each.schema?.default ?? ""} />`}
        </${Field}>`)}</div>
      ${media && html`<${Field} label="Body" hint=${media}><textarea name="body" rows="6" spellcheck=${false} defaultValue=${content.example === undefined ? "" : JSON.stringify(content.example, null, 2)}></textarea></${Field}>
        <p class="dim">Its shape: <${Shape} document=${document} schema=${content.schema} /></p>`}
    </${Form}>
    ${answer && html`
      <section class="card"><p role="status"><strong class=${answer.status < 400 ? "done" : "bad"}>${answer.status}</strong> <span class="dim">in ${Math.round(answer.took)} ms</span></p>
        <details><summary>Headers</summary><dl>${answer.headers.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl></details>
        <pre class="value"><code>${answer.text}</code></pre>
        <${Command} text=${answer.command} /></section>`}`;
}

const commandOf = (method, { url, values, body }) => {
  try {
    return curl(method, url, { values, body: body ? JSON.parse(body) : undefined });
  } catch {
    return `${curl(method, url, { values })} --data-binary @body`;
  }
};

// The beginning of an answer, which may be a stream without an end.
async function readSome(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const ends = Date.now() + 3000;
  let text = "";
  for (;;) {
    const wait = new Promise((resolve) => setTimeout(() => resolve({ done: true }), Math.max(0, ends - Date.now())));
    const { value, done } = await Promise.race([reader.read(), wait]);
    if (done || text.length > SHOWN_MAX) break;
    text += value;
  }
  text = text.slice(0, SHOWN_MAX);
  try {
    return pretty(JSON.parse(text));
  } catch {
    return text;
  }
}

// A schema in a few words; named shapes open where they stand.
function Shape({ document, schema }) {
  const [open, set] = useState(false);
  if (!schema || typeof schema !== "object") return "anything";
  if (schema.$ref) {
    const name = schema.$ref.split("/").at(-1);
    return html`<span><button type="button" class="plain" aria-expanded=${open} onClick=${() => set(!open)}>${name}</button>${open && html`<${Fields} document=${document} schema=${document.components.schemas[name]} />`}</span>`;
  }
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return several.map((each, index) => html`${index ? " or " : ""}<${Shape} document=${document} schema=${each} />`);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (schema.type === "array") return html`list of <${Shape} document=${document} schema=${schema.items} />`;
  return Array.isArray(schema.type) ? schema.type.join(" or ") : schema.type ?? "anything";
}

const Fields = ({ document, schema }) => html`
  <table class="fields"><tbody>${Object.entries(schema.properties ?? {}).map(([name, each]) => html`
    <tr key=${name}><td><code>${name}</code></td><td><${Shape} document=${document} schema=${each} /></td><td>${each.description ?? ""}</td></tr>`)}</tbody></table>`;
