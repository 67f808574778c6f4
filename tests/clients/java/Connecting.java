import java.util.Map;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** Both clients reach the server. */
public final class Connecting {
  /** One message, there and back. */
  public Object message(Server server) throws Exception {
    String topic = server.topic();
    try (Producer<String> producer = server.client().newProducer(Schema.STRING).topic(topic).create()) {
      producer.send("hello");
    }
    try (Consumer<String> consumer =
        server
            .client()
            .newConsumer(Schema.STRING)
            .topic(topic)
            .subscriptionName("s")
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
            .subscribe()) {
      Message<String> message = consumer.receive();
      consumer.acknowledge(message);
      return message.getValue();
    }
  }

  /** The tenants that the admin client sees. */
  public Object admin(Server server) throws Exception {
    return Map.of("tenants", server.admin().tenants().getTenants());
  }
}
