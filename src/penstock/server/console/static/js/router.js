// Which view the page shows: the fragment of its URL, `#/path?name=value`. Each view and message has its own.
import { useEffect, useState } from "./lib.js";

function read() {
  const text = location.hash.replace(/^#/, "") || "/";
  const [path, values = ""] = text.split("?", 2);
  return {
    path: path.split("/").filter(Boolean).map(decodeURIComponent),
    values: Object.fromEntries(new URLSearchParams(values)),
  };
}

export function useRoute() {
  const [route, set] = useState(read);
  useEffect(() => {
    const changed = () => set(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

export function link(path, values) {
  const given = Object.entries(values ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const tail = given.length ? `?${new URLSearchParams(given)}` : "";
  return `#/${path.map(encodeURIComponent).join("/")}${tail}`;
}

export const topicLink = (name, tab = "messages", values = {}) => link(["topic", name, tab], values);

export function go(path, values, replace = false) {
  const hash = link(path, values);
  if (replace) history.replaceState(null, "", hash), dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = hash;
}
