// Messages of all partitions as they come, by one stream. Of many only the newest are shown; all are counted.
import { curl } from "../api.js";
import { count, oneLine, rate, time } from "../format.js";
import { makeFilter } from "../filter.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { eventOf, readStream } from "../stream.js";
import { Command, Field, Problem } from "../ui.js";

const TAIL = "/console/api/tail";
const SHOWN = 100; // messages on the page
const AGAIN_MS = 1000;

export function Live({ name, topic }) {
  const [paused, setPaused] = useState(false);
  const [text, setText] = useState("");
  const [state, set] = useState({ messages: [], total: 0, rate: 0, error: null });
  const total = useRef(0);
  const filter = useRef(null);
  filter.current = makeFilter({ text });

  // The server sends an event some times a second at most, and only counts what lies between: nothing piles up here.
  const take = (texts) => {
    const fresh = [];
    for (const event of texts.map(eventOf)) {
      if (event === null) continue;
      total.current += event.count;
      fresh.push(...event.messages);
    }
    const shown = (filter.current ? fresh.filter(filter.current) : fresh).sort((a, b) => b.publishTime - a.publishTime);
    set((before) => ({ ...before, error: null, messages: [...shown, ...before.messages].slice(0, SHOWN), total: total.current }));
  };

  useEffect(() => {
    if (paused) return undefined;
    const controller = new AbortController();
    follow(controller.signal);
    return () => controller.abort();
  }, [name, topic.partitions, paused]);

  async function follow(signal) {
    while (!signal.aborted) {
      try {
        await readStream(TAIL, { values: { topic: name }, accept: "text/event-stream", signal, take });
        if (topic.terminated) return;
      } catch (error) {
        if (signal.aborted) return;
        set((before) => ({ ...before, error }));
        if (error.status >= 400 && error.status < 500 && error.status !== 429) return;
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  useEffect(() => {
    let seen = { at: performance.now(), total: total.current };
    const timer = setInterval(() => {
      const now = { at: performance.now(), total: total.current };
      const rate = ((now.total - seen.total) / (now.at - seen.at)) * 1000;
      seen = now;
      set((before) => ({ ...before, rate }));
    }, 1000);
    return () => clearInterval(timer);
  }, []);

  return html`
    <div class="toolbar">
      <button type="button" class="primary" aria-pressed=${paused} onClick=${() => setPaused(!paused)}>${paused ? "Resume" : "Pause"}</button>
      <button type="button" onClick=${() => set({ ...state, messages: [] })}>Clear</button>
      <${Field} label="Text"><input value=${text} onInput=${(event) => setText(event.target.value)} /></${Field}>
      <span class="dim" role="status">${count(state.total)} received, ${rate(state.rate)}/s${paused ? ", paused" : ""}</span>
    </div>
    <${Problem} error=${state.error} />
    ${state.messages.length === 0
      ? html`<div class="empty"><h2>Waiting for messages</h2><p>New messages appear here. From a terminal:</p>
          <${Command} text=${curl("GET", TAIL, { values: { topic: name } })} /></div>`
      : html`<div class="scroll"><table class="messages"><thead><tr><th scope="col">Published</th><th scope="col" class="number">Partition</th><th scope="col">Key</th><th scope="col">Value</th></tr></thead>
          <tbody>${state.messages.map((message) => html`
            <tr key=${message.messageId}><td>${time(message.publishTime)}</td><td class="number">${message.partition}</td>
              <td class="cut"><code>${oneLine(message.key ?? "", 60)}</code></td><td class="cut"><code>${oneLine(message.value, 200)}</code></td></tr>`)}</tbody></table></div>`}
    ${state.total > state.messages.length && state.messages.length === SHOWN && html`<p class="dim">The newest ${SHOWN} are shown, with long values cut. Messages beyond what the page can show are counted, but not filtered.</p>`}`;
}
