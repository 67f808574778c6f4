import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** What many steps do. */
final class Steps {
  private static final int RECEIVE_S = 25;

  private Steps() {}

  /** What may fail. */
  interface Attempt {
    void run() throws Exception;
  }

  /** A consumer of the subscription "s" from the earliest message on. */
  static ConsumerBuilder<String> earliest(Server server, String topic) throws PulsarClientException {
    return server
        .client()
        .newConsumer(Schema.STRING)
        .topic(topic)
        .subscriptionName("s")
        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
        .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS);
  }

  /** The next message; fails where none comes. */
  static <T> Message<T> next(Consumer<T> consumer) throws PulsarClientException {
    Message<T> message = consumer.receive(RECEIVE_S, TimeUnit.SECONDS);
    if (message == null) {
      throw new IllegalStateException("no message in " + RECEIVE_S + " s");
    }
    return message;
  }

  /** The values of the next messages, acknowledged. */
  static List<String> values(Consumer<String> consumer, int count) throws PulsarClientException {
    List<String> found = new ArrayList<>();
    while (found.size() < count) {
      Message<String> message = next(consumer);
      found.add(message.getValue());
      consumer.acknowledge(message);
    }
    return found;
  }

  /** Whether no message comes for a while. */
  static boolean nothing(Consumer<?> consumer) throws PulsarClientException {
    return consumer.receive(400, TimeUnit.MILLISECONDS) == null;
  }

  /** A time that is late enough for what is on its way, by System.nanoTime(). */
  static long soon() {
    return System.nanoTime() + TimeUnit.SECONDS.toNanos(RECEIVE_S);
  }

  /** Wait until something holds, for a while. */
  static void until(BooleanSupplier holds) throws InterruptedException {
    for (long end = soon(); !holds.getAsBoolean() && System.nanoTime() < end; ) {
      Thread.sleep(10);
    }
  }

  /** Whether the values are the prefix with 0, 1, 2 and so on. */
  static boolean ordered(List<String> values, String prefix) {
    for (int i = 0; i < values.size(); i++) {
      if (!values.get(i).equals(prefix + i)) {
        return false;
      }
    }
    return true;
  }

  /** Send m0, m1 and so on, one entry each. */
  static List<MessageId> send(Server server, String topic, int count) throws Exception {
    List<MessageId> sent = new ArrayList<>();
    try (Producer<String> producer = server.client().newProducer(Schema.STRING).topic(topic).enableBatching(false).create()) {
      for (int i = 0; i < count; i++) {
        sent.add(producer.newMessage().key("k" + i).value("m" + i).send());
      }
    }
    return sent;
  }

  /** Send m0, m1 and so on as one batch; their ids. */
  static List<String> batch(Server server, String topic, int count) throws Exception {
    List<CompletableFuture<MessageId>> sent = new ArrayList<>();
    try (Producer<String> producer =
        server.client().newProducer(Schema.STRING).topic(topic).batchingMaxPublishDelay(10, TimeUnit.SECONDS)
            .batchingMaxMessages(count).create()) {
      for (int i = 0; i < count; i++) {
        sent.add(producer.sendAsync("m" + i));
      }
      producer.flush();
    }
    List<String> ids = new ArrayList<>();
    for (CompletableFuture<MessageId> one : sent) {
      ids.add(one.get().toString());
    }
    return ids;
  }

  /** The class of the error that an attempt ends with, "none" without one. */
  static String errorOf(Attempt attempt) {
    try {
      attempt.run();
      return "none";
    } catch (ExecutionException | CompletionException error) {
      return error.getCause().getClass().getSimpleName();
    } catch (Exception error) {
      return error.getClass().getSimpleName();
    }
  }
}
