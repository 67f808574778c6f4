// Streams of the server, under the person's credentials: server-sent events and lines of JSON, by fetch.
import { errorOf, headersOf, query } from "./api.js";

// Calls `take(texts)` with the texts of events (or lines) as they come, several at once. Ends with the stream; throws
// an ApiError, and an AbortError when `signal` says so.
export async function readStream(path, { values, accept, signal, take }) {
  const headers = headersOf({ accept });
  const response = await fetch(path + query(values), { signal, credentials: "omit", headers });
  if (!response.ok) throw await errorOf(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const events = accept === "text/event-stream";
  const end = events ? "\n\n" : "\n";
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const last = rest.lastIndexOf(end);
    if (last < 0) continue;
    const parts = rest.slice(0, last).split(end);
    rest = rest.slice(last + end.length);
    await take(parts);
  }
}

// The data of a server-sent event as JSON; null for a comment. An `event: error` throws.
export function eventOf(text) {
  let data = null;
  let name = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("data: ")) data = data === null ? line.slice(6) : `${data}\n${line.slice(6)}`;
    else if (line.startsWith("event: ")) name = line.slice(7);
  }
  if (data === null) return null;
  const value = JSON.parse(data);
  if (name === "error") throw new Error(value.message ?? data);
  return value;
}
