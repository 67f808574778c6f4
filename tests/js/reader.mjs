// The reader example of Pulsar's WebSocket documentation, from the earliest message on; it ends after one.
import WebSocket from "ws";

const topic = `${process.argv[2]}/ws/v2/reader/persistent/public/default/my-topic?messageId=earliest`;
const ws = new WebSocket(topic);

ws.on('message', function(message) {
  var receiveMsg = JSON.parse(message);
  console.log('Received: %s - payload: %s', message, Buffer.from(receiveMsg.payload, 'base64').toString());
  var ackMsg = {"messageId" : receiveMsg.messageId};
  ws.send(JSON.stringify(ackMsg));
  ws.close();
});
