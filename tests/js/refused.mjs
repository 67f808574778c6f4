// What `ws` sees of a refused upgrade: the status and the text.
import WebSocket from "ws";

const ws = new WebSocket(`${process.argv[2]}/ws/v2/consumer/persistent/public/default/t/s?subscriptionType=X`);

ws.on("unexpected-response", (request, response) => {
  response.setEncoding("utf8");
  response.on("data", (text) => console.log("%d %s", response.statusCode, text));
  response.on("end", () => ws.terminate());
});
ws.on("error", () => {});
