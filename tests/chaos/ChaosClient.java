import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Producers and a consumer of Kafka's own client. Each input line is a command with arguments between tabs:
 * {@code open name setting=value…}, {@code init|begin|commit|abort|close name}, {@code send name record…}, and
 * {@code consume servers isolation topic partition start end}. A record is topic, partition, timestamp, key, value and
 * headers between commas; bytes are base64, {@code -} is null, headers are {@code name:value} between bars. The answer
 * to {@code send} is a line for each record, {@code A offset timestamp} or {@code E reason}; to {@code consume} it is
 * {@code offset timestamp digest} for each record.
 */
public final class ChaosClient {
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final PrintStream answers;

    private ChaosClient(PrintStream answers) {
        this.answers = answers;
    }

    public static void main(String[] args) throws IOException {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // what a library prints is no answer
        var client = new ChaosClient(out);
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            try {
                client.run(line.split("\t"));
            } catch (Exception failure) {
                Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
                out.println("!" + cause.toString().replace('\n', ' '));
            }
            out.println();
            out.flush();
        }
        client.producers.values().forEach(producer -> producer.close(Duration.ZERO));
    }

    private void run(String[] words) throws ExecutionException, InterruptedException, NoSuchAlgorithmException {
        switch (words[0]) {
            case "open" -> open(words);
            case "init" -> producers.get(words[1]).initTransactions();
            case "begin" -> producers.get(words[1]).beginTransaction();
            case "commit" -> producers.get(words[1]).commitTransaction();
            case "abort" -> producers.get(words[1]).abortTransaction();
            case "close" -> producers.remove(words[1]).close(Duration.ZERO);
            case "send" -> send(producers.get(words[1]), words);
            case "consume" -> consume(words);
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private void open(String[] words) {
        Map<String, Object> settings = new HashMap<>();
        for (int i = 2; i < words.length; i++) {
            int equals = words[i].indexOf('=');
            settings.put(words[i].substring(0, equals), words[i].substring(equals + 1));
        }
        producers.put(words[1], new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer()));
    }

    private void send(KafkaProducer<byte[], byte[]> producer, String[] words) throws InterruptedException {
        List<Object> sent = new ArrayList<>();
        for (int i = 2; i < words.length; i++) {
            try {
                sent.add(producer.send(record(words[i])));
            } catch (RuntimeException failure) {
                sent.add(failure);
            }
        }
        producer.flush();
        for (Object one : sent) {
            try {
                if (one instanceof RuntimeException failure) {
                    throw failure;
                }
                RecordMetadata where = (RecordMetadata) ((Future<?>) one).get();
                answers.println("A " + (where.hasOffset() ? where.offset() : -1) + " " + where.timestamp());
            } catch (ExecutionException | RuntimeException failure) {
                answers.println("E " + failure.toString().replace('\n', ' '));
            }
        }
    }

    private static ProducerRecord<byte[], byte[]> record(String word) {
        String[] parts = word.split(",", -1);
        var record = new ProducerRecord<>(
                parts[0], Integer.valueOf(parts[1]), Long.valueOf(parts[2]), bytes(parts[3]), bytes(parts[4]));
        if (!parts[5].isEmpty()) {
            for (String header : parts[5].split("\\|", -1)) {
                int colon = header.indexOf(':');
                record.headers().add(new String(bytes(header.substring(0, colon)), StandardCharsets.UTF_8),
                        bytes(header.substring(colon + 1)));
            }
        }
        return record;
    }

    private void consume(String[] words) throws NoSuchAlgorithmException {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", words[1], "isolation.level", words[2], "enable.auto.commit", "false",
                "auto.offset.reset", "none", "max.poll.records", "2000", "client.id", "judge");
        var partition = new TopicPartition(words[3], Integer.parseInt(words[4]));
        long end = Long.parseLong(words[6]);
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, Long.parseLong(words[5]));
            long deadline = System.nanoTime() + 120_000_000_000L;
            while (consumer.position(partition) < end) {
                var records = consumer.poll(Duration.ofSeconds(1)).records(partition);
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    if (record.offset() < end) {
                        answers.println(record.offset() + " " + record.timestamp() + " " + digest(record));
                    }
                }
                answers.flush();
                if (!records.isEmpty()) {
                    deadline = System.nanoTime() + 120_000_000_000L;
                } else if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("nothing after " + consumer.position(partition) + " for 120 s");
                }
            }
        }
    }

    private static String digest(ConsumerRecord<byte[], byte[]> record) throws NoSuchAlgorithmException {
        var md5 = MessageDigest.getInstance("MD5");
        add(md5, record.key());
        add(md5, record.value());
        Header[] headers = record.headers().toArray();
        length(md5, headers.length);
        for (Header header : headers) {
            add(md5, header.key().getBytes(StandardCharsets.UTF_8));
            add(md5, header.value());
        }
        var hex = new StringBuilder();
        for (byte part : md5.digest()) {
            hex.append(Character.forDigit((part >> 4) & 15, 16)).append(Character.forDigit(part & 15, 16));
        }
        return hex.toString();
    }

    private static void add(MessageDigest md5, byte[] data) {
        length(md5, data == null ? -1 : data.length);
        if (data != null) {
            md5.update(data);
        }
    }

    private static void length(MessageDigest md5, int length) {
        md5.update(new byte[] {(byte) (length >> 24), (byte) (length >> 16), (byte) (length >> 8), (byte) length});
    }

    private static byte[] bytes(String word) {
        return word.equals("-") ? null : Base64.getDecoder().decode(word);
    }
}
