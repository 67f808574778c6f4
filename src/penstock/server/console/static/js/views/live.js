// Messages as they come, by server-sent events. Of many only the newest are shown; all are counted.
import { partitionPath, curl } from "../api.js";
import { count, oneLine, rate, time } from "../format.js";
import { makeFilter } from "../filter.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { eventOf, readStream } from "../stream.js";
import { Command, Field, Problem } from "../ui.js";

const SHOWN = 100; // messages on the page
const DECODED = 200; // of those that come between two frames; the rest are counted
const AGAIN_MS = 1000;

// What came since the page was drawn last.
class Tail {
  constructor() {
    this.texts = [];
    this.total = 0;
    this.passed = 0;
    this.lastIds = new Map();
  }

  take(partition, texts) {
    const events = texts.filter((text) => text.startsWith("id:") || text.includes("data:"));
    if (!events.length) return;
    this.total += events.length;
    this.lastIds.set(partition, /^id: (.*)$/m.exec(events.at(-1))?.[1]);
    for (const text of events.length > DECODED ? events.slice(-DECODED) : events) this.texts.push(text);
    if (this.texts.length > DECODED) this.texts.splice(0, this.texts.length - DECODED);
  }

  // The newest messages first, decoded.
  drain(filter) {
    const texts = this.texts;
    this.texts = [];
    const messages = texts.map(eventOf).filter((message) => message !== null && (!filter || filter(message)));
    return messages.reverse();
  }
}

export function Live({ name, topic }) {
  const [paused, setPaused] = useState(false);
  const [text, setText] = useState("");
  const [state, set] = useState({ messages: [], total: 0, rate: 0, error: null });
  const tail = useRef(new Tail());
  const filter = useRef(null);
  filter.current = makeFilter({ text });

  useEffect(() => {
    if (paused) return undefined;
    const controller = new AbortController();
    const partitions = Array.from({ length: Math.max(1, topic.partitions) }, (_, each) => each);
    for (const partition of partitions) follow(partition, controller.signal);
    return () => controller.abort();
  }, [name, topic.partitions, paused]);

  async function follow(partition, signal) {
    let started = false;
    while (!signal.aborted) {
      const lastId = tail.current.lastIds.get(partition);
      try {
        await readStream(`${partitionPath(name, partition)}/messages`, {
          values: lastId && started ? {} : { message_id: "latest" },
          lastId: started ? lastId : undefined,
          accept: "text/event-stream",
          signal,
          take: (texts) => {
            started = true;
            tail.current.take(partition, texts);
          },
        });
        set((before) => ({ ...before, error: null }));
      } catch (error) {
        if (signal.aborted) return;
        set((before) => ({ ...before, error }));
        if (error.status >= 400 && error.status < 500 && error.status !== 429) return;
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  useEffect(() => {
    let frame;
    let seen = { at: performance.now(), total: tail.current.total };
    let shownRate = 0;
    const draw = () => {
      const now = performance.now();
      if (now - seen.at >= 1000) {
        shownRate = ((tail.current.total - seen.total) / (now - seen.at)) * 1000;
        seen = { at: now, total: tail.current.total };
        set((before) => ({ ...before, rate: shownRate, total: tail.current.total }));
      }
      if (tail.current.texts.length) {
        try {
          const fresh = tail.current.drain(filter.current);
          if (fresh.length) set((before) => ({ ...before, messages: [...fresh, ...before.messages].slice(0, SHOWN), total: tail.current.total }));
        } catch (error) {
          set((before) => ({ ...before, error }));
        }
      }
      frame = setTimeout(() => requestAnimationFrame(draw), 100);
    };
    draw();
    return () => clearTimeout(frame);
  }, []);

  return html`
    <div class="toolbar">
      <button type="button" class="primary" aria-pressed=${paused} onClick=${() => setPaused(!paused)}>${paused ? "Go on" : "Pause"}</button>
      <button type="button" onClick=${() => set({ ...state, messages: [] })}>Clear</button>
      <${Field} label="Text"><input value=${text} onInput=${(event) => setText(event.target.value)} /></${Field}>
      <span class="dim" role="status">${count(state.total)} came, ${rate(state.rate)} a second${paused ? ", paused" : ""}</span>
    </div>
    <${Problem} error=${state.error} />
    ${state.messages.length === 0
      ? html`<div class="empty"><h2>Waiting for messages</h2><p>What is published from now on appears here. From a terminal:</p>
          <${Command} text=${curl("GET", `${partitionPath(name, 0)}/messages`, { accept: "text/event-stream", values: { message_id: "latest" } })} /></div>`
      : html`<div class="scroll"><table class="messages"><thead><tr><th scope="col">Published</th><th scope="col" class="number">Partition</th><th scope="col">Key</th><th scope="col">Value</th></tr></thead>
          <tbody>${state.messages.map((message) => html`
            <tr key=${message.messageId}><td>${time(message.publishTime)}</td><td class="number">${message.partition}</td>
              <td class="cut"><code>${oneLine(message.key ?? "", 60)}</code></td><td class="cut"><code>${oneLine(message.value, 200)}</code></td></tr>`)}</tbody></table></div>`}
    ${state.total > state.messages.length && state.messages.length === SHOWN && html`<p class="dim">The newest ${SHOWN} are shown. When more come than a page can show, the others are counted.</p>`}`;
}
