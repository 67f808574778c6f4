import java.nio.charset.StandardCharsets;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TopicMetadata;
import org.apache.pulsar.client.api.interceptor.ProducerInterceptor;
import org.apache.pulsar.client.impl.MessageIdImpl;

/** What producers do. */
public final class Producing {
  /** One after another: ids rise, and everything that a message carries arrives. */
  public Object sync(Server server) throws Exception {
    String topic = server.topic();
    List<Object> entries = new ArrayList<>();
    try (Consumer<String> consumer = Steps.earliest(server, topic).subscribe();
        Producer<String> producer =
            server.client().newProducer(Schema.STRING).topic(topic).producerName("p").enableBatching(false).create()) {
      for (int i = 0; i < 3; i++) {
        MessageId id =
            producer.newMessage().key("k" + i).orderingKey(new byte[] {1}).value("m" + i).property("n", "" + i)
                .eventTime(1000 + i).sequenceId(10 + i).send();
        entries.add(((MessageIdImpl) id).getEntryId());
      }
      Message<String> first = consumer.receive();
      return Map.of(
          "entries", entries,
          "value", first.getValue(),
          "key", first.getKey(),
          "ordering", first.getOrderingKey().length,
          "properties", first.getProperties(),
          "event", first.getEventTime(),
          "sequence", first.getSequenceId(),
          "producer", first.getProducerName(),
          "topic", first.getTopicName().equals(topic));
    }
  }

  /** Many in flight, without batches, in order. */
  public Object async(Server server) throws Exception {
    String topic = server.topic();
    try (Consumer<String> consumer = Steps.earliest(server, topic).subscribe();
        Producer<String> producer =
            server.client().newProducer(Schema.STRING).topic(topic).enableBatching(false).create()) {
      List<CompletableFuture<MessageId>> sent = new ArrayList<>();
      for (int i = 0; i < 500; i++) {
        sent.add(producer.sendAsync("m" + i));
      }
      CompletableFuture.allOf(sent.toArray(new CompletableFuture<?>[0])).get();
      return Steps.ordered(Steps.values(consumer, 500), "m");
    }
  }

  /** Batches of ten: the ids have batch indexes, and producer and consumer tell the same ids. */
  public Object batched(Server server) throws Exception {
    String topic = server.topic();
    try (Consumer<String> consumer = Steps.earliest(server, topic).subscribe()) {
      List<String> sent = Steps.batch(server, topic, 10);
      List<String> received = new ArrayList<>();
      for (int i = 0; i < 10; i++) {
        received.add(consumer.receive().getMessageId().toString());
      }
      return Map.of("same", sent.equals(received), "last", received.get(9).replaceAll("^\\d+:", ""));
    }
  }

  /** Batches by key, to a Key_Shared subscription. */
  public Object batchedByKey(Server server) throws Exception {
    String topic = server.topic();
    try (Consumer<String> consumer = Steps.earliest(server, topic).subscriptionType(SubscriptionType.Key_Shared).subscribe();
        Producer<String> producer =
            server.client().newProducer(Schema.STRING).topic(topic).batcherBuilder(BatcherBuilder.KEY_BASED).create()) {
      for (int i = 0; i < 30; i++) {
        producer.newMessage().key("k" + i % 3).value("m" + i).sendAsync();
      }
      producer.flush();
      List<String> values = Steps.values(consumer, 30);
      return values.stream().distinct().count();
    }
  }

  /** A message of twelve megabytes in chunks of the largest message that the server takes. */
  public Object chunked(Server server) throws Exception {
    String topic = server.topic();
    byte[] large = new byte[12 * 1024 * 1024];
    for (int i = 0; i < large.length; i++) {
      large[i] = (byte) (i * 31 + i / 997);
    }
    try (Consumer<byte[]> consumer =
            server.client().newConsumer().topic(topic).subscriptionName("s").subscribe();
        Producer<byte[]> producer =
            server.client().newProducer().topic(topic).enableBatching(false).enableChunking(true).create()) {
      producer.send(large);
      producer.send("small".getBytes(StandardCharsets.UTF_8));
      Message<byte[]> first = consumer.receive();
      Message<byte[]> second = consumer.receive();
      consumer.acknowledge(first);
      consumer.acknowledge(second);
      return Map.of("equal", Arrays.equals(large, first.getData()), "next", new String(second.getData(), StandardCharsets.UTF_8));
    }
  }

  /** Every compression, in batches. */
  public Object compressed(Server server) throws Exception {
    Map<String, Object> found = new LinkedHashMap<>();
    for (CompressionType type : CompressionType.values()) {
      String topic = server.topic(type.name().toLowerCase());
      try (Consumer<String> consumer = Steps.earliest(server, topic).subscribe();
          Producer<String> producer =
              server.client().newProducer(Schema.STRING).topic(topic).compressionType(type).create()) {
        for (int i = 0; i < 20; i++) {
          producer.sendAsync("the same text again and again " + i);
        }
        producer.flush();
        found.put(type.name(), Steps.ordered(Steps.values(consumer, 20), "the same text again and again "));
      }
    }
    return found;
  }

  /** End-to-end encryption: the server sees no plain text, the consumer does. */
  public Object encrypted(Server server) throws Exception {
    String topic = server.topic();
    CryptoKeyReader keys = new Keys();
    try (Consumer<String> consumer = Steps.earliest(server, topic).cryptoKeyReader(keys).subscribe();
        Producer<String> producer =
            server.client().newProducer(Schema.STRING).topic(topic).addEncryptionKey("k").cryptoKeyReader(keys).create()) {
      for (int i = 0; i < 5; i++) {
        producer.sendAsync("secret" + i);
      }
      producer.flush();
      return Steps.ordered(Steps.values(consumer, 5), "secret");
    }
  }

  /** Four partitions: keys keep theirs, and nothing is lost. */
  public Object partitioned(Server server) throws Exception {
    String topic = server.topic();
    server.admin().topics().createPartitionedTopic(topic, 4);
    Map<String, List<String>> places = new LinkedHashMap<>();
    try (Consumer<String> consumer = Steps.earliest(server, topic).subscribe();
        Producer<String> producer = server.client().newProducer(Schema.STRING).topic(topic).create()) {
      for (int i = 0; i < 40; i++) {
        producer.newMessage().key("k" + i % 8).value("m" + i).send();
      }
      int count = 0;
      for (; count < 40; count++) {
        Message<String> message = consumer.receive();
        String partition = message.getTopicName().replaceAll(".*-partition-", "");
        places.computeIfAbsent(message.getKey(), k -> new ArrayList<>()).add(partition);
        consumer.acknowledge(message);
      }
      return Map.of(
          "count", count,
          "one each", places.values().stream().allMatch(p -> p.stream().distinct().count() == 1),
          "partitions", server.client().getPartitionsForTopic(topic, false).get().size());
    }
  }

  /** A delayed message comes after those that were sent later, not before its time. */
  public Object delayed(Server server) throws Exception {
    String topic = server.topic();
    try (Consumer<String> consumer = Steps.earliest(server, topic).subscriptionType(SubscriptionType.Shared).subscribe();
        Producer<String> producer = server.client().newProducer(Schema.STRING).topic(topic).create()) {
      long start = System.nanoTime();
      producer.newMessage().value("later").deliverAfter(5, TimeUnit.SECONDS).send();
      producer.newMessage().value("now").send();
      List<String> values = Steps.values(consumer, 2);
      return Map.of("values", values, "early", System.nanoTime() - start < 4_900_000_000L);
    }
  }

  /** Sequence ids after a restart of the producer, where the namespace removes duplicates. */
  public Object deduplicated(Server server) throws Exception {
    String namespace = "public/dedup-" + System.nanoTime();
    server.admin().namespaces().createNamespace(namespace);
    server.admin().namespaces().setDeduplicationStatus(namespace, true);
    String topic = "persistent://" + namespace + "/t";
    List<Object> last = new ArrayList<>();
    for (int round = 0; round < 2; round++) {
      try (Producer<String> producer =
          server.client().newProducer(Schema.STRING).topic(topic).producerName("p").sendTimeout(0, TimeUnit.SECONDS).create()) {
        last.add(producer.getLastSequenceId());
        for (int i = 0; i < 5; i++) {
          producer.newMessage().sequenceId(i).value("m" + i).send();
        }
      }
    }
    try (Consumer<String> consumer = Steps.earliest(server, topic).subscribe()) {
      return Map.of("last", last, "values", Steps.values(consumer, 5), "more", Steps.nothing(consumer));
    }
  }

  /** A second exclusive producer is refused; one that waits gets its turn. */
  public Object exclusive(Server server) throws Exception {
    String topic = server.topic();
    Producer<String> first =
        server.client().newProducer(Schema.STRING).topic(topic).accessMode(ProducerAccessMode.Exclusive).create();
    String refused =
        Steps.errorOf(
            () -> server.client().newProducer(Schema.STRING).topic(topic).accessMode(ProducerAccessMode.Exclusive).create());
    CompletableFuture<Producer<String>> waiting =
        server.client().newProducer(Schema.STRING).topic(topic).accessMode(ProducerAccessMode.WaitForExclusive).createAsync();
    boolean early = waiting.isDone();
    first.close();
    try (Producer<String> second = waiting.get()) {
      second.send("x");
      return Map.of("refused", refused, "early", early);
    }
  }

  /** Interceptors see what is sent and acknowledged. */
  public Object intercepted(Server server) throws Exception {
    String topic = server.topic();
    List<String> seen = new ArrayList<>();
    ProducerInterceptor interceptor =
        new ProducerInterceptor() {
          public void close() {}

          public boolean eligible(Message message) {
            return true;
          }

          public Message beforeSend(Producer producer, Message message) {
            seen.add("before");
            return message;
          }

          public void onSendAcknowledgement(Producer producer, Message message, MessageId id, Throwable error) {
            seen.add(error == null ? "acknowledged" : error.toString());
          }

          public void onPartitionsChange(String topicName, int partitions) {}
        };
    try (Producer<String> producer = server.client().newProducer(Schema.STRING).topic(topic).intercept(interceptor).create()) {
      producer.send("x");
      return seen;
    }
  }

  /** A transaction is refused with an error, and soon. */
  public Object transaction(Server server) throws Exception {
    return Steps.errorOf(
        () -> {
          try (var client =
              org.apache.pulsar.client.api.PulsarClient.builder().serviceUrl(server.serviceUrl).enableTransaction(true)
                  .operationTimeout(5, TimeUnit.SECONDS).build()) {
            client.newTransaction().withTransactionTimeout(5, TimeUnit.SECONDS).build().get();
          }
        });
  }

  /** A schema of its own for one message: none, where the producer has one, and one where the producer has none. */
  public Object otherSchema(Server server) throws Exception {
    Map<String, Object> found = new LinkedHashMap<>();
    String topic = server.topic();
    try (Consumer<byte[]> consumer = server.client().newConsumer(Schema.BYTES).topic(topic).subscriptionName("s").subscribe();
        Producer<byte[]> producer = server.client().newProducer(Schema.BYTES).topic(topic).create()) {
      producer.newMessage(Schema.BYTES).value(new byte[] {1}).send();
      String refused = Steps.errorOf(() -> producer.newMessage(Schema.STRING).value("x").send());
      Message<byte[]> first = Steps.next(consumer);
      found.put("first", first.getData().length);
      found.put("without version", first.getSchemaVersion() == null);
      found.put("text", refused);
    }
    try (Producer<String> producer = server.client().newProducer(Schema.STRING).topic(server.topic("text")).create()) {
      found.put("bytes", Steps.errorOf(() -> producer.newMessage(Schema.BYTES).value(new byte[] {1}).send()));
    }
    return found;
  }

  /** A message that is larger than the server takes. */
  public Object tooLarge(Server server) throws Exception {
    try (Producer<byte[]> producer =
        server.client().newProducer().topic(server.topic()).enableBatching(false).create()) {
      String refused = Steps.errorOf(() -> producer.send(new byte[6 * 1024 * 1024]));
      producer.send(new byte[10]); // and it goes on
      return refused;
    }
  }

  /** A key pair in memory, as PEM. */
  private static final class Keys implements CryptoKeyReader {
    private final transient KeyPair pair;

    Keys() throws Exception {
      KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
      generator.initialize(2048);
      pair = generator.generateKeyPair();
    }

    @Override
    public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
      return info("PUBLIC KEY", pair.getPublic().getEncoded());
    }

    @Override
    public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
      return info("PRIVATE KEY", pair.getPrivate().getEncoded());
    }

    private static EncryptionKeyInfo info(String what, byte[] encoded) {
      String body = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(encoded);
      String pem = "-----BEGIN " + what + "-----\n" + body + "\n-----END " + what + "-----\n";
      return new EncryptionKeyInfo(pem.getBytes(StandardCharsets.UTF_8), Map.of());
    }
  }
}
