// One topic, in tabs.
import { adminPath, get, shortTopic } from "../api.js";
import { bytes, compact, count, rate } from "../format.js";
import { useLoad } from "../hooks.js";
import { html } from "../lib.js";
import { topicLink } from "../router.js";
import { Figure, Loaded, Tabs } from "../ui.js";
import { Live } from "./live.js";
import { Messages } from "./messages.js";
import { Publish } from "./publish.js";
import { Schemas } from "./schemas.js";
import { Settings } from "./settings.js";
import { Subscriptions } from "./subscriptions.js";

const TABS = [["messages", "Messages"], ["live", "Live"], ["publish", "Publish"], ["subscriptions", "Subscriptions"], ["schemas", "Schemas"], ["settings", "Settings"]];
// Which permission shows a tab.
const NEEDS = { messages: ["consume"], live: ["consume"], publish: ["produce"], subscriptions: ["consume", "admin"], schemas: ["produce", "consume"], settings: ["admin"] };
const VIEWS = { messages: Messages, live: Live, publish: Publish, subscriptions: Subscriptions, schemas: Schemas, settings: Settings };

export function Topic({ route, server }) {
  const [, name, tab = "messages"] = route.path;
  const about = useLoad((signal) => get("/console/api/topic", { topic: name }, signal), [name], 15000);
  const partitions = about.value?.partitions;
  const stats = useLoad(
    async (signal) => (partitions === undefined ? undefined : get(`${adminPath(name)}/${partitions > 0 ? "partitioned-stats" : "stats"}`, {}, signal)),
    [name, partitions], 3000);
  const may = useLoad((signal) => get("/console/api/permissions", { topic: name }, signal), [name]);
  const View = VIEWS[tab] ?? Messages;
  const tabs = TABS.filter(([each]) => !may.value || NEEDS[each].some((action) => may.value[action]));
  return html`
    <p class="crumbs"><a href="#/topics">Topics</a> /</p>
    <h1 class="wrap">${shortTopic(name)}</h1>
    <${Loaded} of=${about}>${(topic) => html`
      <div>
        <div class="figures">
          <${Figure} label="Partitions" value=${topic.partitions || "none"} />
          <${Figure} label="Messages" value=${count(stats.value?.messages ?? topic.messages)} />
          <${Figure} label="Size" value=${bytes(stats.value?.storageSize ?? topic.storageSize)} />
          <${Figure} label="In/s" value=${rate(stats.value?.msgRateIn)} />
          <${Figure} label="Out/s" value=${rate(stats.value?.msgRateOut)} />
          <${Figure} label="Backlog" value=${compact(Object.values(stats.value?.subscriptions ?? {}).reduce((sum, one) => sum + one.msgBacklog, 0))} hint="Messages that subscriptions have not acknowledged" />
          <${Figure} label="Schema" value=${topic.schemaType ? `${topic.schemaType}, version ${topic.schemaVersion}` : "none"} />
          ${topic.terminated && html`<${Figure} label="State" value="terminated" />`}
        </div>
        <${Tabs} label="Topic" tabs=${tabs} current=${tab} href=${(each) => topicLink(name, each)} />
        ${may.value && !tabs.some(([each]) => each === tab)
          ? html`<p class="problem">Your role has no permission for this. Its permissions on the topic: ${Object.keys(may.value).filter((action) => may.value[action]).join(", ") || "none"}.</p>`
          : html`<${View} key=${`${name}/${tab}`} name=${name} topic=${topic} stats=${stats} route=${route} server=${server} may=${may.value ?? {}} reload=${about.reload} />`}
      </div>`}</${Loaded}>`;
}
