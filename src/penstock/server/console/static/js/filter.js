// Which messages a person wants to see: by key, property, text, and a path in JSON values.

// `$.a.b[0]` to its steps; null where it is no such path.
export function parsePath(text) {
  if (!/^\$?(\.?[^.[\]\s]+|\[\d+\]|\["[^"]*"\])(\.[^.[\]\s]+|\[\d+\]|\["[^"]*"\])*$/.test(text)) return null;
  const steps = [];
  for (const [, name, index, quoted] of text.replace(/^\$/, "").matchAll(/\.?([^.[\]]+)|\[(\d+)\]|\["([^"]*)"\]/g)) {
    if (index !== undefined) steps.push(Number(index));
    else steps.push(quoted ?? name);
  }
  return steps;
}

const COMPARE = {
  "=": (a, b) => a === b || String(a) === String(b),
  "!=": (a, b) => !(a === b || String(a) === String(b)),
  ">": (a, b) => a > b,
  "<": (a, b) => a < b,
  ">=": (a, b) => a >= b,
  "<=": (a, b) => a <= b,
  "~": (a, b) => String(a).includes(String(b)),
};

// `$.price > 3`, `$.name = "tea"`, `$.note ~ "late"`, or a path alone: it is there. Throws an Error with a sentence.
export function parseCondition(text) {
  const found = /^\s*(.+?)\s*(!=|>=|<=|=|>|<|~)\s*(.+?)\s*$/.exec(text);
  const path = parsePath((found ? found[1] : text).trim());
  if (path === null) throw new Error(`This is no path: ${text}. One is $.order.items[0].price`);
  if (!found) return (value) => at(value, path) !== undefined;
  let wanted;
  try {
    wanted = JSON.parse(found[3]);
  } catch {
    wanted = found[3];
  }
  const compare = COMPARE[found[2]];
  return (value) => {
    const there = at(value, path);
    return there !== undefined && compare(there, wanted);
  };
}

function at(value, path) {
  for (const step of path) {
    if (value === null || typeof value !== "object") return undefined;
    value = value[step];
  }
  return value;
}

// A test of messages as REST gives them. `condition` is as `parseCondition` takes it. Throws an Error with a sentence.
export function makeFilter({ key, property, text, condition }) {
  const tests = [];
  if (key) tests.push((message) => message.key === key);
  if (property) {
    const [name, value] = property.includes("=") ? property.split(/=(.*)/s, 2) : [property, undefined];
    tests.push(({ properties }) => properties && Object.hasOwn(properties, name) && (value === undefined || properties[name] === value));
  }
  if (text) {
    const wanted = text.toLowerCase();
    const has = (value) => value !== undefined && value !== null && (typeof value === "string" ? value : JSON.stringify(value)).toLowerCase().includes(wanted);
    tests.push((message) => has(message.value) || has(message.key) || has(message.properties));
  }
  if (condition) {
    const holds = parseCondition(condition);
    tests.push((message) => holds(jsonOf(message.value)));
  }
  return tests.length ? (message) => tests.every((test) => test(message)) : null;
}

// A text that holds JSON counts as what it holds.
function jsonOf(value) {
  if (typeof value !== "string" || !/^\s*[[{]/.test(value)) return value;
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}
