// Numbers, sizes and times as people read them.
const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => (value == null ? "–" : whole.format(Math.round(value)));
export const compact = (value) => (value == null ? "–" : Math.abs(value) < 10000 ? whole.format(Math.round(value)) : short.format(value));
export const rate = (value) => (value == null ? "–" : value === 0 ? "0" : value < 10 ? value.toFixed(1) : compact(value));

export function bytes(value) {
  if (value == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function ms(value) {
  if (value == null) return "–";
  return value < 10 ? `${value.toFixed(1)} ms` : value < 10000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`;
}

const pad = (value, digits = 2) => String(value).padStart(digits, "0");

// A time (ms since the epoch) in the zone of the browser, to the millisecond.
export function time(value) {
  if (!value) return "–";
  const at = new Date(Number(value));
  if (Number.isNaN(at.getTime())) return String(value);
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  return `${day} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}.${pad(at.getMilliseconds(), 3)}`;
}

export function ago(value, now = Date.now()) {
  if (!value) return "never";
  const seconds = Math.max(0, Math.round((now - value) / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86400)} days ago`;
}

// A value of a message in one line, cut.
export function oneLine(value, most = 300) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text === undefined ? "" : text.length > most ? `${text.slice(0, most)}…` : text;
}

export const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
