import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.BatchReceivePolicy;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Messages;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;

/** What consumers do. */
public final class Consuming {
  /** Exclusive: a second consumer is refused, and comes in when the first is gone. */
  public Object exclusive(Server server) throws Exception {
    String topic = server.topic();
    Steps.send(server, topic, 3);
    Consumer<String> first = Steps.earliest(server, topic).subscribe();
    String refused = Steps.errorOf(() -> Steps.earliest(server, topic).subscribe());
    List<String> values = Steps.values(first, 2);
    first.close();
    try (Consumer<String> second = Steps.earliest(server, topic).subscribe()) {
      return Map.of("refused", refused, "first", values, "second", Steps.values(second, 1), "more", Steps.nothing(second));
    }
  }

  /** Failover: the second takes over, with what the first had not acknowledged, and both are told. */
  public Object failover(Server server) throws Exception {
    String topic = server.topic();
    List<String> told = new CopyOnWriteArrayList<>();
    Consumer<String> first =
        Steps.earliest(server, topic).subscriptionType(SubscriptionType.Failover).consumerName("a")
            .consumerEventListener(new Told("a", told)).subscribe();
    Consumer<String> second =
        Steps.earliest(server, topic).subscriptionType(SubscriptionType.Failover).consumerName("b")
            .consumerEventListener(new Told("b", told)).subscribe();
    Steps.send(server, topic, 4);
    List<String> values = Steps.values(first, 2);
    boolean idle = Steps.nothing(second);
    first.close();
    List<String> rest = Steps.values(second, 2);
    Steps.until(() -> told.contains("b active")); // listeners are called by a thread of their own
    return Map.of("first", values, "idle", idle, "second", rest, "told", told);
  }

  /** Shared: two consumers get everything once between them. */
  public Object shared(Server server) throws Exception {
    String topic = server.topic();
    try (Consumer<String> one = Steps.earliest(server, topic).subscriptionType(SubscriptionType.Shared).receiverQueueSize(1).subscribe();
        Consumer<String> two = Steps.earliest(server, topic).subscriptionType(SubscriptionType.Shared).receiverQueueSize(1).subscribe()) {
      Steps.send(server, topic, 20);
      List<String> first = drain(20, one, two);
      return Map.of("all", new TreeSet<>(first).size(), "count", first.size());
    }
  }

  /** Key_Shared: every key stays with one consumer, in order. */
  public Object keyShared(Server server) throws Exception {
    String topic = server.topic();
    try (Consumer<String> one = Steps.earliest(server, topic).subscriptionType(SubscriptionType.Key_Shared).consumerName("a").subscribe();
        Consumer<String> two = Steps.earliest(server, topic).subscriptionType(SubscriptionType.Key_Shared).consumerName("b").subscribe();
        Producer<String> producer = server.client().newProducer(Schema.STRING).topic(topic).enableBatching(false).create()) {
      for (int i = 0; i < 60; i++) {
        producer.newMessage().key("key-" + i % 20).value("m" + i).send();
      }
      Map<String, List<String>> owners = new LinkedHashMap<>();
      int count = 0;
      long end = Steps.soon();
      do {
        for (Consumer<String> consumer : List.of(one, two)) {
          for (Message<String> message; (message = consumer.receive(500, TimeUnit.MILLISECONDS)) != null; count++) {
            owners.computeIfAbsent(message.getKey(), k -> new ArrayList<>()).add(consumer.getConsumerName());
            consumer.acknowledge(message);
          }
        }
      } while (count < 60 && System.nanoTime() < end);
      StringBuilder names = new StringBuilder();
      for (int i = 0; i < 20; i++) {
        names.append(owners.get("key-" + i).get(0));
      }
      boolean single = owners.values().stream().allMatch(names2 -> names2.stream().distinct().count() == 1);
      return Map.of("count", count, "single", single, "owners", names.toString());
    }
  }

  /** Key_Shared with ranges that the consumers name; ranges that meet are refused. */
  public Object sticky(Server server) throws Exception {
    String topic = server.topic();
    try (Consumer<String> low = ranged(server, topic, 0, 32767);
        Consumer<String> high = ranged(server, topic, 32768, 65535)) {
      String refused = Steps.errorOf(() -> ranged(server, topic, 100, 200));
      Steps.send(server, topic, 20);
      List<String> all = drain(20, low, high);
      return Map.of("all", new TreeSet<>(all).size(), "refused", refused);
    }
  }

  /** A negative acknowledgement brings the message again, counted. */
  public Object negative(Server server) throws Exception {
    String topic = server.topic();
    Steps.send(server, topic, 2);
    try (Consumer<String> consumer =
        Steps.earliest(server, topic).subscriptionType(SubscriptionType.Shared)
            .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS).subscribe()) {
      Message<String> first = Steps.next(consumer);
      consumer.negativeAcknowledge(first);
      List<String> rest = Steps.values(consumer, 1);
      Message<String> again = Steps.next(consumer);
      consumer.acknowledge(again);
      return Map.of("rest", rest, "again", again.getValue(), "count", again.getRedeliveryCount(), "more", Steps.nothing(consumer));
    }
  }

  /** What is not acknowledged in time comes again. */
  public Object ackTimeout(Server server) throws Exception {
    String topic = server.topic();
    Steps.send(server, topic, 1);
    try (Consumer<String> consumer =
        Steps.earliest(server, topic).subscriptionType(SubscriptionType.Shared).ackTimeout(1, TimeUnit.SECONDS)
            .ackTimeoutTickTime(100, TimeUnit.MILLISECONDS).subscribe()) {
      Steps.next(consumer);
      Message<String> again = Steps.next(consumer);
      consumer.acknowledge(again);
      return again.getRedeliveryCount();
    }
  }

  /** After two redeliveries a message goes to the dead letter topic, with its origin. */
  public Object deadLetter(Server server) throws Exception {
    String topic = server.topic();
    Steps.send(server, topic, 1);
    DeadLetterPolicy policy = DeadLetterPolicy.builder().maxRedeliverCount(2).initialSubscriptionName("dead").build();
    int tries = 0;
    try (Consumer<String> consumer =
        Steps.earliest(server, topic).subscriptionType(SubscriptionType.Shared).deadLetterPolicy(policy)
            .negativeAckRedeliveryDelay(50, TimeUnit.MILLISECONDS).subscribe()) {
      for (Message<String> message; tries < 3 && (message = consumer.receive(25, TimeUnit.SECONDS)) != null; tries++) {
        consumer.negativeAcknowledge(message);
      }
      try (Consumer<String> dead =
          server.client().newConsumer(Schema.STRING).topic(topic + "-s-DLQ").subscriptionName("dead").subscribe()) {
        Message<String> message = dead.receive(25, TimeUnit.SECONDS);
        return Map.of(
            "tries", tries, "dead", message.getValue(), "origin", topic.equals(message.getProperty("REAL_TOPIC")),
            "more", Steps.nothing(consumer));
      }
    }
  }

  /** The retry letter topic: consumed later, and in the end dead. */
  public Object retryLetter(Server server) throws Exception {
    String topic = server.topic();
    Steps.send(server, topic, 1);
    DeadLetterPolicy policy = DeadLetterPolicy.builder().maxRedeliverCount(2).build();
    List<String> times = new ArrayList<>();
    try (Consumer<String> consumer =
            Steps.earliest(server, topic).subscriptionType(SubscriptionType.Shared).enableRetry(true)
                .deadLetterPolicy(policy).subscribe();
        Consumer<String> dead =
            server.client().newConsumer(Schema.STRING).topic(topic + "-s-DLQ").subscriptionName("dead").subscribe()) {
      for (int i = 0; i < 3; i++) {
        Message<String> message = Steps.next(consumer);
        times.add(String.valueOf(message.getProperty("RECONSUMETIMES")));
        consumer.reconsumeLater(message, 100, TimeUnit.MILLISECONDS);
      }
      return Map.of("times", times, "dead", Steps.next(dead).getValue());
    }
  }

  /** Seeking to a message, to a time and to the beginning. */
  public Object seek(Server server) throws Exception {
    String topic = server.topic();
    List<MessageId> ids = Steps.send(server, topic, 6);
    Map<String, Object> found = new LinkedHashMap<>();
    try (Consumer<String> consumer = Steps.earliest(server, topic).subscribe()) {
      List<Message<String>> all = new ArrayList<>();
      for (int i = 0; i < 6; i++) {
        all.add(Steps.next(consumer));
      }
      consumer.acknowledgeCumulative(all.get(5));
      consumer.seek(ids.get(2));
      found.put("id", Steps.next(consumer).getValue());
      consumer.seek(MessageId.earliest);
      found.put("earliest", Steps.next(consumer).getValue());
      consumer.seek(MessageId.latest);
      found.put("latest", Steps.nothing(consumer));
      consumer.seek(all.get(0).getPublishTime());
      found.put("time", Steps.next(consumer).getValue());
    }
    try (Consumer<String> consumer = Steps.earliest(server, topic).startMessageIdInclusive().subscribe()) {
      consumer.seek(ids.get(2));
      found.put("inclusive", Steps.next(consumer).getValue());
    }
    return found;
  }

  /** Messages in batches, of a number and of a time. */
  public Object batchReceive(Server server) throws Exception {
    String topic = server.topic();
    Steps.send(server, topic, 12);
    try (Consumer<String> consumer =
        Steps.earliest(server, topic)
            .batchReceivePolicy(BatchReceivePolicy.builder().maxNumMessages(10).timeout(2, TimeUnit.SECONDS).build())
            .subscribe()) {
      List<Integer> sizes = new ArrayList<>();
      for (int i = 0; i < 2; i++) {
        Messages<String> messages = consumer.batchReceive();
        sizes.add(messages.size());
        consumer.acknowledge(messages);
      }
      return sizes;
    }
  }

  /** A cumulative acknowledgement outlives the consumer. */
  public Object cumulative(Server server) throws Exception {
    String topic = server.topic();
    Steps.send(server, topic, 6);
    Consumer<String> consumer = Steps.earliest(server, topic).subscribe();
    for (int i = 0; i < 4; i++) {
      Message<String> message = Steps.next(consumer);
      if (i == 3) {
        consumer.acknowledgeCumulative(message);
      }
    }
    consumer.close();
    try (Consumer<String> again = Steps.earliest(server, topic).subscribe()) {
      return Steps.values(again, 2);
    }
  }

  /** Part of a batch, acknowledged by index: the rest comes again under the ids that it had. */
  public Object batchIndex(Server server) throws Exception {
    String topic = server.topic();
    List<String> ids = Steps.batch(server, topic, 6);
    Consumer<String> consumer = byIndex(server, topic);
    List<Message<String>> all = new ArrayList<>();
    for (int i = 0; i < 6; i++) {
      all.add(Steps.next(consumer));
    }
    for (int i : new int[] {0, 2, 3}) {
      consumer.acknowledgeAsync(all.get(i)).get();
    }
    consumer.redeliverUnacknowledgedMessages();
    Map<String, Object> found = new LinkedHashMap<>();
    found.put("again", rest(consumer, ids, 3));
    consumer.close();
    consumer = byIndex(server, topic);
    found.put("reconnected", rest(consumer, ids, 3));
    consumer.close();
    consumer = byIndex(server, topic);
    Message<String> one = Steps.next(consumer);
    consumer.seek(one.getMessageId());
    found.put("sought", Steps.next(consumer).getValue());
    consumer.close();
    return found;
  }

  /** Without acknowledgement by index a batch that was acknowledged in part comes whole, as with Pulsar. */
  public Object batchWhole(Server server) throws Exception {
    String topic = server.topic();
    Steps.batch(server, topic, 4);
    Consumer<String> consumer = Steps.earliest(server, topic).subscribe();
    consumer.acknowledge(Steps.next(consumer));
    consumer.close();
    try (Consumer<String> again = Steps.earliest(server, topic).subscribe()) {
      List<String> values = Steps.values(again, 4);
      return Map.of("values", values, "more", Steps.nothing(again));
    }
  }

  /** Several topics in one consumer. */
  public Object multiTopics(Server server) throws Exception {
    List<String> topics = List.of(server.topic("a"), server.topic("b"));
    try (Consumer<String> consumer =
        server.client().newConsumer(Schema.STRING).topics(topics).subscriptionName("s").subscribe()) {
      for (String topic : topics) {
        Steps.send(server, topic, 3);
      }
      TreeSet<String> from = new TreeSet<>();
      for (int i = 0; i < 6; i++) {
        Message<String> message = Steps.next(consumer);
        from.add(message.getTopicName());
        consumer.acknowledge(message);
      }
      return from.equals(new TreeSet<>(topics));
    }
  }

  /** A pattern, which a topic that comes later joins. */
  public Object pattern(Server server) throws Exception {
    String first = server.topic("pattern");
    String base = first.replaceAll("pattern-\\d+$", "pattern");
    Steps.send(server, first, 1);
    try (Consumer<String> consumer =
        server.client().newConsumer(Schema.STRING).topicsPattern(Pattern.compile(base + "-.*")).subscriptionName("s")
            .subscriptionInitialPosition(org.apache.pulsar.client.api.SubscriptionInitialPosition.Earliest)
            .patternAutoDiscoveryPeriod(1, TimeUnit.SECONDS).subscribe()) {
      consumer.acknowledge(Steps.next(consumer));
      Steps.send(server, base + "-later", 1);
      return Steps.next(consumer).getTopicName().equals(base + "-later");
    }
  }

  /** A subscription that is gone starts anew. */
  public Object unsubscribe(Server server) throws Exception {
    String topic = server.topic();
    Steps.send(server, topic, 2);
    Consumer<String> consumer = Steps.earliest(server, topic).subscribe();
    Steps.values(consumer, 2);
    consumer.unsubscribe();
    try (Consumer<String> again = Steps.earliest(server, topic).subscribe()) {
      return Steps.values(again, 2);
    }
  }

  /** A terminated topic tells its consumers. */
  public Object terminated(Server server) throws Exception {
    String topic = server.topic();
    Steps.send(server, topic, 1);
    try (Consumer<String> consumer = Steps.earliest(server, topic).subscribe()) {
      server.admin().topics().terminateTopic(topic);
      Steps.values(consumer, 1);
      for (int i = 0; i < 100 && !consumer.hasReachedEndOfTopic(); i++) {
        consumer.receive(50, TimeUnit.MILLISECONDS);
      }
      String refused = Steps.errorOf(() -> Steps.send(server, topic, 1));
      return Map.of("end", consumer.hasReachedEndOfTopic(), "refused", refused);
    }
  }

  private static Consumer<String> byIndex(Server server, String topic) throws Exception {
    return Steps.earliest(server, topic).subscriptionType(SubscriptionType.Shared).enableBatchIndexAcknowledgment(true).subscribe();
  }

  private static List<Integer> rest(Consumer<String> consumer, List<String> ids, int count) throws Exception {
    List<Integer> found = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      found.add(ids.indexOf(Steps.next(consumer).getMessageId().toString()));
    }
    return found;
  }

  private static Consumer<String> ranged(Server server, String topic, int start, int end) throws Exception {
    return Steps.earliest(server, topic).subscriptionType(SubscriptionType.Key_Shared)
        .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(start, end))).subscribe();
  }

  /** Everything that both get: so many messages, and until nothing more comes. */
  private static List<String> drain(int count, Consumer<String> one, Consumer<String> two) throws Exception {
    List<String> found = new ArrayList<>();
    long end = Steps.soon();
    for (boolean any = true; any || found.size() < count && System.nanoTime() < end; ) {
      any = false;
      for (Consumer<String> consumer : List.of(one, two)) {
        Message<String> message = consumer.receive(400, TimeUnit.MILLISECONDS);
        if (message != null) {
          found.add(message.getValue());
          consumer.acknowledge(message);
          any = true;
        }
      }
    }
    return found;
  }

  private static final class Told implements ConsumerEventListener {
    private final String name;
    private final List<String> told;

    Told(String name, List<String> told) {
      this.name = name;
      this.told = told;
    }

    @Override
    public void becameActive(Consumer<?> consumer, int partition) {
      told.add(name + " active");
    }

    @Override
    public void becameInactive(Consumer<?> consumer, int partition) {
      told.add(name + " inactive");
    }
  }
}
