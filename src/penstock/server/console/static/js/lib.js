// The one importer of the vendored Preact with htm.
export {
  html, render, useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback,
} from "../vendor/preact-htm.js";
