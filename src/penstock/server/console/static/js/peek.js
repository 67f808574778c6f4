// The messages that a subscription gets next: which they are, as the admin API says of each place in the backlog, and what
// they hold, as the REST endpoint decodes it.
import { adminPath, ApiError, get, parseTopic, partitionPath, respond } from "./api.js";
import { VALUE_MAX } from "./reading.js";

const UINT64 = 64; // bits

function varint(number) {
  let rest = BigInt.asUintN(UINT64, number);
  const bytes = [];
  while (rest > 127n) {
    bytes.push(Number(rest & 127n) | 128);
    rest >>= 7n;
  }
  return [...bytes, Number(rest)];
}

// The id after which a read begins with a message: Pulsar's MessageIdData, in base64.
function before(ledger, entry, partition, index) {
  const bytes = [8, ...varint(ledger), 16, ...varint(index > 0 ? entry : entry - 1n), 24, ...varint(BigInt(partition ?? -1))];
  if (index > 0) bytes.push(32, ...varint(BigInt(index - 1)));
  return btoa(String.fromCharCode(...bytes));
}

// What is at a place of the backlog of one log: a message, or all of an entry, which is how Pulsar's brokers count. Null
// behind its end. Who may not read gets what the admin API shows.
async function place(name, log, subscription, position, most) {
  let response;
  try {
    response = await respond("GET", `${adminPath(log)}/subscription/${encodeURIComponent(subscription)}/position/${position}`);
  } catch (error) {
    if (error.status === 404 || error.status === 412) return null;
    throw error;
  }
  const [ledger, entry, index] = (response.headers.get("x-pulsar-message-id") ?? "").split(":");
  const numbered = log.slice(name.length).match(/^-partition-(\d+)$/);
  const partition = numbered ? Number(numbered[1]) : null; // a topic without partitions is read as partition 0, its ids say -1
  const count = Number(response.headers.get("x-pulsar-num-batch-message") ?? 1);
  const values = { message_id: entry && before(BigInt(ledger), BigInt(entry), partition, Number(index ?? 0)), max_messages: Math.min(count, most), max_value_bytes: VALUE_MAX };
  try {
    const { messages } = await get(`${partitionPath(name, partition ?? 0)}/messages`, values);
    return messages.map((message) => ({ ...message, log: parseTopic(log).local, position }));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return [{ log: parseTopic(log).local, position, value: await response.text() }];
  }
}

// At most `most` messages of each log, and twice as many of all.
export async function peek(name, logs, subscription, most) {
  const found = [];
  for (const log of logs) {
    const end = Math.min(found.length + most, 2 * most);
    for (let position = 1; found.length < end && position <= 2 * most; position += 1) {
      const here = await place(name, log, subscription, position, end - found.length);
      if (here === null) break;
      found.push(...here);
    }
  }
  return found;
}
