// The page: its head, its navigation, and the view that the URL names.
import { get } from "./api.js";
import { useLoad } from "./hooks.js";
import { html, render, useEffect, useState } from "./lib.js";
import { link, useRoute } from "./router.js";
import { onSession, signOut } from "./session.js";
import { Loading, Problem } from "./ui.js";
import { Overview } from "./views/overview.js";
import { Pipelines } from "./views/pipelines.js";
import { Reference } from "./views/reference.js";
import { SignIn } from "./views/signin.js";
import { Subjects } from "./views/subjects.js";
import { Topic } from "./views/topic.js";
import { Topics } from "./views/topics.js";

const VIEWS = { "": Overview, topics: Topics, topic: Topic, schemas: Subjects, pipelines: Pipelines, reference: Reference };
const NAVIGATION = [["", "Overview"], ["topics", "Topics"], ["schemas", "Schemas"], ["pipelines", "Pipelines"], ["reference", "API"]];
// At /docs the page is the reference alone, which everyone may read; the console may be off there.
const DOCS = location.pathname === "/docs";
const THEMES = ["system", "light", "dark"];

function useTheme() {
  const [theme, set] = useState(localStorage.getItem("penstock.theme") ?? "system");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("penstock.theme", theme);
  }, [theme]);
  return [theme, () => set(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length])];
}

function App() {
  const route = useRoute();
  const [theme, nextTheme] = useTheme();
  const [session, again] = useState(0);
  useEffect(() => onSession(() => again((number) => number + 1)), []);
  const server = useLoad((signal) => get("/console/api/server", {}, signal), [session], 15000);
  const [signing, setSigning] = useState(false);
  const name = DOCS ? "reference" : route.path[0] ?? "";
  const View = VIEWS[name];
  useEffect(() => {
    const title = NAVIGATION.find(([path]) => path === name)?.[1] ?? route.path[1] ?? "Penstock";
    document.title = `${title} · Penstock console`;
  }, [route]);

  const stranger = server.error?.status === 401;
  let content;
  if (signing && stranger) content = html`<${SignIn} reason=${session ? server.error.message : ""} />`;
  else if (DOCS) content = html`<${Reference} route=${route} />`;
  else if (stranger) content = html`<${SignIn} reason=${session ? server.error.message : ""} />`;
  else if (!server.value) content = server.error ? html`<${Problem} error=${server.error} />` : html`<${Loading} />`;
  else if (!View) content = html`<p class="problem">There is no such view. <a href="#/">Overview</a></p>`;
  else content = html`<${View} key=${`${name}/${name === "topic" ? route.path[1] : ""}/${session}`} route=${route} server=${server.value} />`;

  return html`
    <a class="skip" href="#content" onClick=${(event) => { event.preventDefault(); document.getElementById("content").focus(); }}>Skip to the content</a>
    <header class="top">
      <a class="brand" href=${DOCS ? "/" : "#/"}>Penstock</a>
      <nav aria-label="Console">
        ${(DOCS && server.error?.status === 404 ? [] : NAVIGATION).map(([path, title]) => html`
          <a href=${(DOCS ? "/console" : "") + link(path ? [path] : [])} aria-current=${path === name || (path === "topics" && name === "topic") ? "page" : undefined}>${title}</a>`)}
      </nav>
      <span class="spread"></span>
      ${DOCS && stranger && html`<button type="button" class="small" onClick=${() => setSigning(!signing)}>${signing ? "Back" : "Sign in"}</button>`}
      ${server.value?.authentication && html`<span class="dim role">${server.value.role}</span>
        <button type="button" class="small" onClick=${signOut}>Sign out</button>`}
      <button type="button" class="small" onClick=${nextTheme} aria-label=${`Colours: ${theme}`}>${{ system: "◐", light: "☀", dark: "☾" }[theme]}</button>
    </header>
    ${server.value?.problem && html`<p class="problem banner" role="alert">${server.value.problem}</p>`}
    <main id="content" tabindex="-1">${content}</main>
    <footer class="dim">${server.value && html`Penstock ${server.value.version} · engine: ${server.value.engine} · `}
      <a href="/openapi.json">OpenAPI</a> · <a href="/asyncapi.json">AsyncAPI</a> · <a href="/metrics">metrics</a></footer>`;
}

const place = document.getElementById("app");
place.replaceChildren();
render(html`<${App} />`, place);
