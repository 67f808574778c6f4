// A consumer as in Pulsar's WebSocket documentation, which leaves its Node.js example out: it ends after one message.
import WebSocket from "ws";

const topic = `${process.argv[2]}/ws/v2/consumer/persistent/public/default/my-topic/my-sub`
  + "?subscriptionInitialPosition=Earliest";
const ws = new WebSocket(topic);

ws.on('message', function(message) {
  var receiveMsg = JSON.parse(message);
  console.log('Received: %s - payload: %s', message, Buffer.from(receiveMsg.payload, 'base64').toString());
  var ackMsg = {"messageId" : receiveMsg.messageId};
  ws.send(JSON.stringify(ackMsg));
  ws.close();
});
