import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.utils.Utils;

/** Prints what Kafka's own client makes of keys: each in hex, and its murmur2. Run with Kafka's jars on the class path. */
public class Murmur2 {
    public static void main(String[] args) {
        List<byte[]> keys = new ArrayList<>();
        for (String text : List.of("", "a", "ab", "abc", "abcd", "abcde", "1", "12", "123", "1234", "12345",
                "kafka", "giberish123456789", "order-1", "order-2", "ключ", "鍵", "😀", "a longer key, of more than thirty-two bytes"))
            keys.add(text.getBytes(StandardCharsets.UTF_8));
        Random random = new Random(7);
        for (int size = 1; size <= 24; size++) {
            byte[] key = new byte[size];
            random.nextBytes(key);
            keys.add(key);
        }
        byte[] framed = {0, 0, 0, 0, 7, 2, 'k'};
        keys.add(framed);
        byte[] ones = new byte[100];
        Arrays.fill(ones, (byte) 0xff);
        keys.add(ones);
        StringJoiner rows = new StringJoiner(",\n  ", "[\n  ", "\n]\n");
        for (byte[] key : keys)
            rows.add("[\"" + HexFormat.of().formatHex(key) + "\", " + Utils.murmur2(key) + "]");
        System.out.print(rows);
    }
}
