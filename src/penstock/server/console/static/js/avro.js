// Whether a JSON value fits a definition of Avro's, before it is sent. The server decides; this tells it sooner, and where.
const PRIMITIVES = {
  null: (value) => value === null,
  boolean: (value) => typeof value === "boolean",
  int: (value) => Number.isInteger(value) && Math.abs(value) <= 2 ** 31,
  long: (value) => Number.isInteger(value) || (typeof value === "string" && /^-?\d+$/.test(value)),
  float: (value) => typeof value === "number",
  double: (value) => typeof value === "number",
  string: (value) => typeof value === "string",
  bytes: (value) => typeof value === "string",
};

// What is wrong, as a sentence that names the place; null where the value fits.
export function misfit(schema, value, where = "the value", names = {}) {
  if (Array.isArray(schema)) {
    const wrong = schema.map((each) => misfit(each, value, where, names));
    return wrong.includes(null) ? null : `${where} is none of ${schema.map(titleOf).join(", ")}`;
  }
  if (typeof schema === "string") {
    if (names[schema]) return misfit(names[schema], value, where, names);
    const fits = PRIMITIVES[schema];
    return !fits || fits(value) ? null : `${where} must be ${schema}`;
  }
  if (schema.name) names[schema.name] = schema;
  switch (schema.type) {
    case "record": return misfitRecord(schema, value, where, names);
    case "array":
      if (!Array.isArray(value)) return `${where} must be an array`;
      return first(value, (each, index) => misfit(schema.items, each, `${where}[${index}]`, names));
    case "map":
      if (!isObject(value)) return `${where} must be an object`;
      return first(Object.entries(value), ([key, each]) => misfit(schema.values, each, `${where}.${key}`, names));
    case "enum": return schema.symbols.includes(value) ? null : `${where} must be one of ${schema.symbols.join(", ")}`;
    case "fixed": return typeof value === "string" ? null : `${where} must be a text`;
    default: return schema.logicalType ? null : misfit(schema.type, value, where, names);
  }
}

function misfitRecord(schema, value, where, names) {
  if (!isObject(value)) return `${where} must be an object`;
  return first(schema.fields, (field) => {
    if (value[field.name] === undefined) {
      const optional = "default" in field || (Array.isArray(field.type) && field.type.includes("null"));
      return optional ? null : `${where} needs the field ${field.name}`;
    }
    return misfit(field.type, value[field.name], where === "the value" ? field.name : `${where}.${field.name}`, names);
  });
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const titleOf = (schema) => (typeof schema === "string" ? schema : schema.name ?? schema.type);

function first(items, find) {
  for (const [index, item] of items.entries()) {
    const found = find(item, index);
    if (found !== null) return found;
  }
  return null;
}
