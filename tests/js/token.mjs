// A producer and a consumer that show a token: in the query, as browsers must, and in a header.
import WebSocket from "ws";

const [, , url, token] = process.argv;
const topic = "persistent/public/default/node";
const consumer = new WebSocket(`${url}/ws/v2/consumer/${topic}/s`, { headers: { Authorization: `Bearer ${token}` } });

consumer.on("message", (frame) => {
  console.log(Buffer.from(JSON.parse(frame).payload, "base64").toString());
  consumer.terminate();
});
consumer.on("open", () => {
  const producer = new WebSocket(`${url}/ws/v2/producer/${topic}?token=${token}`);
  producer.on("open", () => producer.send(JSON.stringify({ payload: Buffer.from("hello").toString("base64") })));
  producer.on("message", () => producer.terminate());
});
