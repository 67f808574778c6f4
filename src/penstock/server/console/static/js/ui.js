// Parts that every view uses.
import { html, useEffect, useRef, useState } from "./lib.js";

export const Problem = ({ error }) =>
  error ? html`<p class="problem" role="alert">${error.message}${error.code ? html` <span class="dim">(${error.status}, ${error.code})</span>` : ""}</p>` : null;

export const Loading = ({ what = "Loading" }) => html`<p class="loading" role="status">${what} …</p>`;

// A load's error, its progress, or what `children` makes of its value.
export function Loaded({ of, children }) {
  if (of.value === undefined) return of.error ? html`<${Problem} error=${of.error} />` : html`<${Loading} />`;
  return html`<div><${Problem} error=${of.error} />${children(of.value)}</div>`;
}

// Says what to do where there is nothing yet.
export const Empty = ({ title, children, command }) => html`
  <div class="empty"><h2>${title}</h2>${children}${command && html`<${Command} text=${command} />`}</div>`;

export function Copy({ text, label = "Copy" }) {
  const [copied, set] = useState(false);
  const copy = async () => {
    await copyText(text);
    set(true);
    setTimeout(() => set(false), 1500);
  };
  return html`<button type="button" class="small" onClick=${copy}>${copied ? "Copied" : label}</button>`;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not a secure context
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

export const Command = ({ text }) => html`
  <div class="command"><pre><code>${text}</code></pre><${Copy} text=${text} label="Copy as curl" /></div>`;

export const Tabs = ({ tabs, current, href, label }) => html`
  <nav class="tabs" aria-label=${label}>
    ${tabs.map(([name, title]) => html`
      <a key=${name} href=${href(name)} aria-current=${name === current ? "page" : undefined}>${title}</a>`)}
  </nav>`;

export const Figure = ({ label, value, hint }) => html`
  <div class="figure" title=${hint}><span class="dim">${label}</span><strong>${value}</strong></div>`;

// A labelled field; `children` is the control.
export const Field = ({ label, hint, children }) => html`
  <label class="field"><span>${label}</span>${children}${hint && html`<small class="dim">${hint}</small>`}</label>`;

// A dialog that is open while it is shown. Escape closes it.
export function Dialog({ title, close, children }) {
  const place = useRef(null);
  useEffect(() => {
    const dialog = place.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  const cancelled = (event) => {
    event.preventDefault();
    close();
  };
  return html`
    <dialog ref=${place} onCancel=${cancelled} aria-label=${title}>
      <header><h2>${title}</h2><button type="button" class="small" onClick=${close} aria-label="Close">✕</button></header>
      ${children}
    </dialog>`;
}

// A button that runs `action` and shows its error; with `confirm` it asks first, and names what will happen.
export function Action({ label, action, confirm, danger, disabled }) {
  const [state, set] = useState({ asking: false, busy: false, error: null });
  const run = async () => {
    set({ asking: false, busy: true, error: null });
    try {
      await action();
      set({ asking: false, busy: false, error: null });
    } catch (error) {
      set({ asking: false, busy: false, error });
    }
  };
  const asked = () => (confirm ? set({ ...state, asking: true }) : run());
  return html`
    <span class="action">
      <button type="button" class=${danger ? "danger" : ""} disabled=${disabled || state.busy} onClick=${asked}>${label}</button>
      ${state.asking && html`
        <${Dialog} title=${label} close=${() => set({ ...state, asking: false })}>
          <p>${confirm}</p>
          <div class="buttons">
            <button type="button" class=${danger ? "danger" : "primary"} onClick=${run}>${label}</button>
            <button type="button" onClick=${() => set({ ...state, asking: false })}>Cancel</button>
          </div>
        </${Dialog}>`}
      <${Problem} error=${state.error} />
    </span>`;
}

// A form whose submit runs `action` with its values by name, and shows what became of it.
export function Form({ submit, action, children, done }) {
  const [state, set] = useState({ busy: false, error: null, text: "" });
  const submitted = async (event) => {
    event.preventDefault();
    const form = event.currentTarget;
    set({ busy: true, error: null, text: "" });
    try {
      const text = await action(Object.fromEntries(new FormData(form)));
      set({ busy: false, error: null, text: text ?? done ?? "" });
    } catch (error) {
      set({ busy: false, error, text: "" });
    }
  };
  return html`
    <form onSubmit=${submitted}>
      ${children}
      <div class="buttons"><button class="primary" disabled=${state.busy}>${submit}</button>
        ${state.text && html`<span class="done" role="status">${state.text}</span>`}</div>
      <${Problem} error=${state.error} />
    </form>`;
}

// A table; `columns` are {title, cell(row), number?, sort?}. `sort` and `order` say how it is sorted.
export const Table = ({ columns, rows, rowKey, caption, sort, descending, onSort }) => html`
  <div class="scroll" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <thead><tr>${columns.map((column) => html`
        <th scope="col" class=${column.number ? "number" : ""}
            aria-sort=${column.sort && column.sort === sort ? (descending ? "descending" : "ascending") : undefined}>
          ${column.sort && onSort
            ? html`<button type="button" class="plain" onClick=${() => onSort(column.sort)}>${column.title}${column.sort === sort ? (descending ? " ↓" : " ↑") : ""}</button>`
            : column.title}
        </th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`
        <tr key=${rowKey(row)}>${columns.map((column) => html`<td class=${column.number ? "number" : ""}>${column.cell(row)}</td>`)}</tr>`)}</tbody>
    </table>
  </div>`;
