// Who the browser says it is. Credentials stay in the tab's session, unless the person asks to keep them.
const KEY = "penstock.authorization";
const listeners = new Set();
let authorization = sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);

// The value of the Authorization header; null without credentials.
export const currentAuthorization = () => authorization;

export function signIn(value, keep) {
  signOut();
  authorization = value;
  (keep ? localStorage : sessionStorage).setItem(KEY, value);
  for (const each of listeners) each();
}

export function signOut() {
  authorization = null;
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
  for (const each of listeners) each();
}

export function onSession(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const bearer = (token) => `Bearer ${token.trim()}`;

export function basic(name, password) {
  const bytes = new TextEncoder().encode(`${name}:${password}`);
  return `Basic ${btoa(String.fromCharCode(...bytes))}`;
}
