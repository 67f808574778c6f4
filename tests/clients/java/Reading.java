import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.ReaderBuilder;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TableView;

/** What readers and table views do. */
public final class Reading {
  /** From the beginning, from a message on, with and without it, and from the end. */
  public Object starts(Server server) throws Exception {
    String topic = server.topic();
    List<MessageId> ids = Steps.send(server, topic, 5);
    Map<String, Object> found = new LinkedHashMap<>();
    found.put("earliest", all(reader(server, topic).startMessageId(MessageId.earliest)));
    found.put("after", all(reader(server, topic).startMessageId(ids.get(2))));
    found.put("with", all(reader(server, topic).startMessageId(ids.get(2)).startMessageIdInclusive()));
    found.put("latest", all(reader(server, topic).startMessageId(MessageId.latest)));
    found.put("last", all(reader(server, topic).startMessageId(MessageId.latest).startMessageIdInclusive()));
    found.put("an hour", all(reader(server, topic).startMessageFromRollbackDuration(1, TimeUnit.HOURS)));
    return found;
  }

  /** From within a batch. */
  public Object withinBatch(Server server) throws Exception {
    String topic = server.topic();
    Steps.batch(server, topic, 6);
    MessageId third;
    try (Reader<String> reader = reader(server, topic).startMessageId(MessageId.earliest).create()) {
      reader.readNext();
      reader.readNext();
      third = reader.readNext().getMessageId();
    }
    return all(reader(server, topic).startMessageId(third));
  }

  /** Two readers with half of the hashes each share the keys. */
  public Object hashRanges(Server server) throws Exception {
    String topic = server.topic();
    List<TreeSet<String>> found = List.of(new TreeSet<>(), new TreeSet<>());
    try (Reader<String> low = ranged(server, topic, 0, 32767);
        Reader<String> high = ranged(server, topic, 32768, 65535)) {
      Steps.send(server, topic, 20);
      long end = Steps.soon();
      do {
        for (int i = 0; i < 2; i++) {
          Reader<String> reader = i == 0 ? low : high;
          for (Message<String> message; (message = reader.readNext(500, TimeUnit.MILLISECONDS)) != null; ) {
            found.get(i).add(message.getValue());
          }
        }
      } while (found.get(0).size() + found.get(1).size() < 20 && System.nanoTime() < end);
    }
    TreeSet<String> both = new TreeSet<>(found.get(0));
    both.retainAll(found.get(1));
    return Map.of(
        "all", found.get(0).size() + found.get(1).size(), "both", both.size(),
        "each", !found.get(0).isEmpty() && !found.get(1).isEmpty());
  }

  /** A reader of a partitioned topic, and seeking. */
  public Object partitioned(Server server) throws Exception {
    String topic = server.topic();
    server.admin().topics().createPartitionedTopic(topic, 3);
    Steps.send(server, topic, 9);
    try (Reader<String> reader = reader(server, topic).startMessageId(MessageId.earliest).create()) {
      List<String> first = rest(reader);
      reader.seek(MessageId.earliest);
      return List.of(first.size(), rest(reader).size());
    }
  }

  /** A table view shows the last value of each key, also of what comes later. */
  public Object tableView(Server server) throws Exception {
    String topic = server.topic();
    try (Producer<String> producer = server.client().newProducer(Schema.STRING).topic(topic).create()) {
      for (int i = 0; i < 6; i++) {
        producer.newMessage().key("k" + i % 3).value("v" + i).send();
      }
      try (TableView<String> view =
          server.client().newTableView(Schema.STRING).topic(topic).autoUpdatePartitionsInterval(1, TimeUnit.SECONDS).create()) {
        Map<String, String> first = new TreeMap<>(Map.copyOf(asMap(view)));
        producer.newMessage().key("k0").value("new").send();
        view.refreshAsync().get(10, TimeUnit.SECONDS);
        return List.of(first, view.get("k0"), view.size());
      }
    }
  }

  /** The last message ids of a consumer's topic. */
  public Object lastIds(Server server) throws Exception {
    String topic = server.topic();
    List<MessageId> ids = Steps.send(server, topic, 3);
    try (var consumer = Steps.earliest(server, topic).subscribe()) {
      boolean same = consumer.getLastMessageIds().get(0).compareTo(ids.get(2)) == 0;
      try (Reader<String> reader = reader(server, server.topic("empty")).startMessageId(MessageId.earliest).create()) {
        return List.of(same, reader.hasMessageAvailable());
      }
    }
  }

  private static Map<String, String> asMap(TableView<String> view) {
    Map<String, String> found = new TreeMap<>();
    view.forEach(found::put);
    return found;
  }

  private static ReaderBuilder<String> reader(Server server, String topic) throws Exception {
    return server.client().newReader(Schema.STRING).topic(topic);
  }

  private static Reader<String> ranged(Server server, String topic, int start, int end) throws Exception {
    return reader(server, topic).startMessageId(MessageId.earliest).keyHashRange(Range.of(start, end)).create();
  }

  private static List<String> all(ReaderBuilder<String> builder) throws Exception {
    try (Reader<String> reader = builder.create()) {
      return rest(reader);
    }
  }

  private static List<String> rest(Reader<String> reader) throws Exception {
    List<String> found = new ArrayList<>();
    while (reader.hasMessageAvailable()) {
      Message<String> message = reader.readNext(25, TimeUnit.SECONDS);
      if (message == null) {
        throw new IllegalStateException("a message is available and does not come");
      }
      found.add(message.getValue());
    }
    return found;
  }
}
