// Lines over time. uPlot is loaded by the page as a script of its own.
import { html, useEffect, useRef, useState } from "./lib.js";

const COLOURS = ["--line-1", "--line-2", "--line-3", "--line-4"];

// A colour of the style sheet as the canvas takes it: `light-dark()` is resolved.
function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// Counts the changes between light and dark, by the person or the system.
function useScheme() {
  const [number, set] = useState(0);
  useEffect(() => {
    const changed = () => set((before) => before + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    const observer = new MutationObserver(changed);
    observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    system.addEventListener("change", changed);
    return () => {
      observer.disconnect();
      system.removeEventListener("change", changed);
    };
  }, []);
  return number;
}

// `data` is [seconds, values, …], `series` the labels with a format each; `label` says what it is to screen readers.
export function Chart({ title, data, series, format, height = 160 }) {
  const place = useRef(null);
  const plot = useRef(null);
  const shape = series.join("|");
  const scheme = useScheme();
  useEffect(() => {
    const dim = colour("--dim");
    const grid = { stroke: colour("--line"), width: 1 };
    const options = {
      width: place.current.clientWidth || 300,
      height,
      legend: { live: true },
      cursor: { points: { size: 5 } },
      axes: [
        { stroke: dim, grid, ticks: grid },
        { stroke: dim, grid, ticks: grid, size: 70, values: (_, values) => values.map((value) => (value == null ? "" : format(value))) },
      ],
      scales: {
        // One point alone has a minute before it.
        x: { range: (_, least, most) => (least === most ? [(most ?? Date.now() / 1000) - 60, most ?? Date.now() / 1000] : [least, most]) },
        y: { range: (_, least, most) => [Math.min(0, least ?? 0), most > 0 ? most * 1.1 : 1] },
      },
      series: [
        { label: "Time" },
        ...series.map((label, index) => ({
          label,
          stroke: colour(COLOURS[index % COLOURS.length]),
          width: 2,
          dash: index < COLOURS.length ? undefined : [6, 4],
          points: { show: false },
          value: (_, value) => (value == null ? "–" : format(value)),
        })),
      ],
    };
    plot.current = new window.uPlot(options, data, place.current);
    const observer = new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width > 0) plot.current?.setSize({ width, height });
    });
    observer.observe(place.current);
    return () => {
      observer.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [shape, height, scheme]);
  useEffect(() => plot.current?.setData(data), [data]);
  const last = series.map((label, index) => {
    const value = data[index + 1].at(-1);
    return `${label}: ${value == null ? "none" : format(value)}`;
  });
  return html`
    <section class="chart">
      <h3>${title}</h3>
      <div ref=${place} role="img" aria-label=${`${title}. Last: ${last.join(", ")}`}></div>
    </section>`;
}
