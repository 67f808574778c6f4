// Reads messages for the browser view: over partitions, filtered, in pages of the REST endpoint that stay small.
import { get, partitionPath } from "./api.js";
import { readStream } from "./stream.js";

export const SCAN_MAX = 20000; // messages looked at for one view
const PAGE = 200;
const PAGE_BYTES = 512 * 1024;
const DOWNLOAD_MAX = 100000;

const chosen = (partitions, partition) =>
  partition !== "" && partition !== undefined ? [Number(partition)] : Array.from({ length: Math.max(1, partitions) }, (_, each) => each);

// Messages as {messages, scanned, full}: `full` where the bound of what is looked at was met.
export async function browse({ name, partitions, values, filter, signal, progress }) {
  const limit = Math.min(1000, Number(values.limit) || 50);
  const found = [];
  let scanned = 0;
  const newest = values.from === "latest";
  const readers = chosen(partitions, values.partition).map((partition) => new (newest ? Backwards : Forwards)(name, partition, values, signal));
  const share = Math.ceil(SCAN_MAX / readers.length);
  const order = newest ? (a, b) => b.publishTime - a.publishTime : (a, b) => a.publishTime - b.publishTime;
  let full = false;
  for (const reader of readers) {
    let here = 0;
    let looked = 0;
    while (here < limit) {
      const page = await reader.next(filter ? PAGE : Math.min(PAGE, limit));
      if (page === null) break;
      scanned += page.length;
      looked += page.length;
      const matching = filter ? page.filter(filter) : page;
      found.push(...matching.slice(0, limit - here));
      here += matching.length;
      progress([...found].sort(order).slice(0, limit), scanned);
      if (looked >= share) {
        full = true;
        break;
      }
    }
  }
  return { messages: found.sort(order).slice(0, limit), scanned, full };
}

// Pages from a place on, until the end of the log as it is now.
class Forwards {
  constructor(name, partition, values, signal) {
    this.path = `${partitionPath(name, partition)}/messages`;
    this.signal = signal;
    const at = values.at;
    this.start = { earliest: {}, offset: { offset: at }, time: { publish_time: at ? new Date(at).getTime() : 0 }, id: { message_id: at } }[values.from] ?? {};
  }

  async next(most) {
    if (this.start === null) return null;
    const answer = await get(this.path, { ...this.start, max_messages: most, max_bytes: PAGE_BYTES }, this.signal);
    this.start = answer.messages.length ? { message_id: answer.next_message_id } : null;
    return answer.messages.length ? answer.messages : null;
  }
}

// Pages from the end on backwards, by offsets.
class Backwards {
  constructor(name, partition, values, signal) {
    this.base = partitionPath(name, partition);
    this.signal = signal;
    this.end = null;
    this.first = 0;
  }

  async next(most) {
    if (this.end === null) {
      const { earliest, latest } = await get(`${this.base}/offsets`, {}, this.signal);
      this.end = latest;
      this.first = earliest;
    }
    if (this.end <= this.first) return null;
    const offset = Math.max(this.first, this.end - most);
    const messages = [];
    let at = offset;
    while (at < this.end) { // an answer may be short by its bytes
      const answer = await get(`${this.base}/messages`, { offset: at, end_offset: this.end, max_messages: most, max_bytes: PAGE_BYTES }, this.signal);
      if (!answer.messages.length) break;
      messages.push(...answer.messages);
      at = messages.at(-1).offset + 1;
    }
    this.end = offset;
    return messages.reverse();
  }
}

// Saves messages as a file of lines, as the server sends them; at most DOWNLOAD_MAX, and those that are there now.
export async function download({ name, partitions, values: { partition, max_messages: _, ...start }, progress }) {
  const lines = [];
  for (const each of chosen(partitions, partition)) {
    await readStream(`${partitionPath(name, each)}/messages`, {
      values: { ...start, max_messages: DOWNLOAD_MAX - lines.length },
      accept: "application/x-ndjson",
      take: (texts) => {
        for (const text of texts) lines.push(text);
        progress(lines.length);
      },
    });
    if (lines.length >= DOWNLOAD_MAX) break;
  }
  const url = URL.createObjectURL(new Blob([lines.join("\n"), lines.length ? "\n" : ""], { type: "application/x-ndjson" }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = `${name.split("/").at(-1)}.ndjson`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
