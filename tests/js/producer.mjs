// The producer example of Pulsar's WebSocket documentation; only `new Buffer`, which Node dropped, is new.
import WebSocket from "ws";

const topic = `${process.argv[2]}/ws/v2/producer/persistent/public/default/my-topic`;
const ws = new WebSocket(topic);

var message = {
  "payload" : Buffer.from("Hello World").toString('base64'),
  "properties": {
    "key1" : "value1",
    "key2" : "value2"
  },
  "context" : "1"
};

ws.on('open', function() {
  // Send one message
  ws.send(JSON.stringify(message));
});

ws.on('message', function(message) {
  console.log('received ack: %s', message);
  ws.close();
});
