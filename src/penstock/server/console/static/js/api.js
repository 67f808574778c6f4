// Calls of the server's public HTTP interface, under the person's credentials.
import { currentAuthorization } from "./session.js";

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function headersOf(more = {}) {
  const authorization = currentAuthorization();
  return authorization ? { authorization, ...more } : more;
}

// The answer's error as an ApiError, whatever its body is.
export async function errorOf(response) {
  const text = await response.text();
  try {
    const body = JSON.parse(text);
    return new ApiError(response.status, body.error_code, body.message ?? body.reason ?? text);
  } catch {
    return new ApiError(response.status, 0, text || `${response.status} ${response.statusText}`);
  }
}

export function query(values) {
  const given = Object.entries(values ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

// Browsers remove the segments `.` and `..` from a path, and the call would reach another resource.
export function checkPath(path) {
  const name = path.split("/").find((part) => part === "." || part === "..");
  if (name) throw new ApiError(412, 41201, `'${name}' is not a name.`);
}

// The answer to a call, as it came. Throws an ApiError for one that is no success.
export async function respond(method, path, { values, body, signal, headers } = {}) {
  checkPath(path);
  let response;
  try {
    response = await fetch(path + query(values), {
      method,
      signal,
      credentials: "omit",
      headers: headersOf(body === undefined ? headers : { "content-type": "application/json", ...headers }),
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, 0, "The server cannot be reached.");
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

export async function call(method, path, how) {
  const response = await respond(method, path, how);
  if (response.status === 204) return null;
  const text = await response.text();
  if (!text) return null;
  return (response.headers.get("content-type") ?? "").includes("json") ? JSON.parse(text) : text;
}

export const get = (path, values, signal) => call("GET", path, { values, signal });
export const post = (path, body, values) => call("POST", path, { body, values });
export const put = (path, body, values) => call("PUT", path, { body, values });
export const remove = (path, values) => call("DELETE", path, { values });

// -- names

// A topic's parts: {domain, tenant, namespace, local}.
export function parseTopic(name) {
  const [domain, rest] = name.includes("://") ? name.split("://", 2) : ["persistent", name];
  const [tenant, namespace, ...local] = rest.split("/");
  return { domain, tenant, namespace, local: local.join("/") };
}

export const shortTopic = (name) => {
  const topic = parseTopic(name);
  const prefix = topic.domain === "persistent" ? "" : `${topic.domain}://`;
  return `${prefix}${topic.tenant}/${topic.namespace}/${topic.local}`;
};

const segments = (topic) => [topic.tenant, topic.namespace, topic.local].map(encodeURIComponent).join("/");

// Paths of a topic in the REST endpoint and in the admin API.
export function restPath(name) {
  const topic = parseTopic(name);
  return `/topics/${topic.domain === "persistent" ? "" : `${topic.domain}/`}${segments(topic)}`;
}
export function adminPath(name) {
  const topic = parseTopic(name);
  return `/admin/v2/${topic.domain}/${segments(topic)}`;
}
export const schemaPath = (name) => `/admin/v2/schemas/${segments(parseTopic(name))}`;
export const partitionPath = (name, partition) => `${restPath(name)}/partitions/${partition}`;

// A command line that does the same as a call.
export function curl(method, path, { values, body, accept } = {}) {
  const quote = (text) => `'${String(text).replaceAll("'", "'\\''")}'`;
  const parts = ["curl"];
  if (method !== "GET") parts.push("-X", method);
  if (currentAuthorization()) parts.push("-H", '"Authorization: $PENSTOCK_AUTHORIZATION"');
  if (accept) parts.push("-H", quote(`Accept: ${accept}`));
  if (body !== undefined) parts.push("-H", quote("Content-Type: application/json"), "-d", quote(JSON.stringify(body)));
  parts.push(quote(location.origin + path + query(values)));
  return parts.join(" ");
}
