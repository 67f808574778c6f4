// Reads messages for the browser view: over partitions, filtered, in pages of the REST endpoint that stay small.
import { get, partitionPath } from "./api.js";
import { readStream } from "./stream.js";

export const SCAN_MAX = 20000; // messages looked at for one view
const PAGE = 200;
const PAGE_BYTES = 512 * 1024;
export const VALUE_MAX = 8192; // of each value in the list; the whole is loaded when it is asked for
const WINDOW_MAX = 1 << 16; // offsets
const WINDOWS_MAX = 200;
const DOWNLOAD_MAX = 100000;
const DOWNLOAD_BYTES = 256 * 1024 * 1024;

const chosen = (partitions, partition) =>
  partition !== "" && partition !== undefined ? [Number(partition)] : Array.from({ length: Math.max(1, partitions) }, (_, each) => each);

// Messages as {messages, scanned, full}: `full` where the bound of what is looked at was met.
export async function browse({ name, partitions, values: given, filter, signal, progress }) {
  // What filters look into must be whole.
  const values = { ...given, cut: given.text || given.where ? undefined : VALUE_MAX };
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
    this.cut = values.cut;
    this.start = { earliest: {}, offset: { offset: at }, time: { publish_time: at ? new Date(at).getTime() : 0 }, id: { message_id: at } }[values.from] ?? {};
  }

  async next(most) {
    if (this.start === null) return null;
    const answer = await get(this.path, { ...this.start, max_messages: most, max_bytes: PAGE_BYTES, max_value_bytes: this.cut }, this.signal);
    this.start = answer.messages.length ? { message_id: answer.next_message_id } : null;
    return answer.messages.length ? answer.messages : null;
  }
}

// Pages from the end on backwards, by offsets. Where many are nobody's (transactions, compaction), it looks further at once.
export class Backwards {
  constructor(name, partition, values, signal) {
    this.base = partitionPath(name, partition);
    this.signal = signal;
    this.cut = values.cut;
    this.end = null;
    this.first = 0;
    this.wide = 1; // windows that the next one is as large as
    this.windows = 0;
  }

  async next(most) {
    if (this.end === null) {
      const { earliest, latest } = await get(`${this.base}/offsets`, {}, this.signal);
      this.end = latest;
      this.first = earliest;
    }
    while (this.end > this.first && this.windows < WINDOWS_MAX) {
      const offset = Math.max(this.first, this.end - Math.min(WINDOW_MAX, most * this.wide));
      const messages = await this.window(offset, this.end);
      this.end = offset;
      this.windows += 1;
      this.wide = messages.length < most / 2 ? this.wide * 2 : 1;
      if (messages.length) return messages.reverse();
    }
    return null;
  }

  async window(offset, end) {
    const messages = [];
    for (let at = offset; at < end; at = messages.at(-1).offset + 1) { // an answer may be short by its bytes
      const range = { offset: at, end_offset: end, max_messages: PAGE, max_bytes: PAGE_BYTES, max_value_bytes: this.cut };
      const answer = await get(`${this.base}/messages`, range, this.signal);
      if (!answer.messages.length) break;
      messages.push(...answer.messages);
    }
    return messages;
  }
}

// Saves messages as a file of lines, as the server sends them; at most DOWNLOAD_MAX or DOWNLOAD_BYTES, and those that are there now.
export async function download({ name, partitions, values: { partition, max_messages: _, ...start }, progress }) {
  const lines = [];
  let size = 0;
  for (const each of chosen(partitions, partition)) {
    await readStream(`${partitionPath(name, each)}/messages`, {
      values: { ...start, max_messages: DOWNLOAD_MAX - lines.length, max_bytes: DOWNLOAD_BYTES - size },
      accept: "application/x-ndjson",
      take: (texts) => {
        for (const text of texts) {
          lines.push(text);
          size += text.length;
        }
        progress(lines.length);
      },
    });
    if (lines.length >= DOWNLOAD_MAX || size >= DOWNLOAD_BYTES) break;
  }
  const url = URL.createObjectURL(new Blob([lines.join("\n"), lines.length ? "\n" : ""], { type: "application/x-ndjson" }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = `${name.split("/").at(-1)}.ndjson`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
