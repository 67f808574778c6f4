// Pull mode with `ws`: permits two messages at a time until five have come; prints their payloads.
import WebSocket from "ws";

const ws = new WebSocket(
  `${process.argv[2]}/ws/v2/consumer/persistent/public/default/pulled/s`
    + "?pullMode=true&subscriptionType=Shared&subscriptionInitialPosition=Earliest",
);
const permit = () => ws.send(JSON.stringify({ type: "permit", permitMessages: 2 }));
let seen = 0;

ws.on("open", permit);
ws.on("message", (data) => {
  if (seen === 5) return; // permitted, and too late
  const message = JSON.parse(data);
  console.log(Buffer.from(message.payload, "base64").toString());
  ws.send(JSON.stringify({ messageId: message.messageId }));
  seen += 1;
  if (seen === 5) ws.close();
  else if (seen % 2 === 0) permit();
});
