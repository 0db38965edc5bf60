import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One transactional producer of Kafka's own client, which speaks transaction.version 2. Arguments are settings, as in
 * {@code key=value}; each input line is {@code init}, {@code begin}, {@code commit}, {@code abort}, or {@code send},
 * topic, partition, timestamp, name, first number, count and size. Record n has the key {@code name-n} and as value the
 * key repeated to the size. The answer to {@code send} is one offset a line.
 */
public final class TransactionalProducer {
    private TransactionalProducer() {}

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // what a library prints is no answer
        Map<String, Object> settings = new HashMap<>();
        for (String setting : args) {
            int equals = setting.indexOf('=');
            settings.put(setting.substring(0, equals), setting.substring(equals + 1));
        }
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                try {
                    run(producer, line.split("\t")).forEach(answers::println);
                } catch (ExecutionException failure) {
                    answers.println("!" + failure.getCause().toString().replace('\n', ' '));
                } catch (KafkaException failure) {
                    answers.println("!" + failure.toString().replace('\n', ' '));
                }
                answers.println();
                answers.flush();
            }
        }
    }

    private static List<Long> run(KafkaProducer<byte[], byte[]> producer, String[] words)
            throws ExecutionException, InterruptedException {
        switch (words[0]) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> {
                return send(producer, words);
            }
        }
        return List.of();
    }

    private static List<Long> send(KafkaProducer<byte[], byte[]> producer, String[] words)
            throws ExecutionException, InterruptedException {
        int partition = Integer.parseInt(words[2]);
        long timestamp = Long.parseLong(words[3]);
        long first = Long.parseLong(words[5]);
        long count = Long.parseLong(words[6]);
        int size = Integer.parseInt(words[7]);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (long number = first; number < first + count; number++) {
            String key = words[4] + "-" + number;
            String value = key.repeat(size / key.length() + 1).substring(0, size);
            sent.add(producer.send(new ProducerRecord<>(
                    words[1], partition, timestamp, key.getBytes(StandardCharsets.UTF_8), value.getBytes(StandardCharsets.UTF_8))));
        }
        producer.flush();
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> record : sent) {
            offsets.add(record.get().offset());
        }
        return offsets;
    }
}
