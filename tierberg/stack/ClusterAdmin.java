import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;

/**
 * Administration that only Kafka's own client can do. Each input line is a command and its arguments, separated by
 * tabs; the answer is its lines, then an empty line; a refusal is a line that begins with {@code !}.
 */
public final class ClusterAdmin {
    private final Admin admin;

    private ClusterAdmin(Admin admin) {
        this.admin = admin;
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // what a library prints is no answer
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (Admin client = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            var commands = new ClusterAdmin(client);
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                try {
                    commands.run(line.split("\t")).forEach(answers::println);
                } catch (ExecutionException failure) {
                    answers.println("!" + failure.getCause().toString().replace('\n', ' '));
                }
                answers.println();
                answers.flush();
            }
        }
    }

    private List<String> run(String[] words) throws ExecutionException, InterruptedException {
        switch (words[0]) {
            case "feature":
                return feature(words[1]);
            case "upgrade":
                return upgrade(words[1], Short.parseShort(words[2]));
            case "reassigning":
                return admin.listPartitionReassignments().reassignments().get().keySet().stream()
                        .map(TopicPartition::toString)
                        .toList();
            default:
                return ofPartition(words[0], new TopicPartition(words[1], Integer.parseInt(words[2])), words);
        }
    }

    private List<String> ofPartition(String command, TopicPartition partition, String[] words)
            throws ExecutionException, InterruptedException {
        switch (command) {
            case "reassign":
                var replicas = Arrays.stream(words[3].split(",")).map(Integer::valueOf).toList();
                var wanted = Map.of(partition, Optional.of(new NewPartitionReassignment(replicas)));
                admin.alterPartitionReassignments(wanted).all().get();
                return List.of();
            case "elect":
                admin.electLeaders(ElectionType.valueOf(words[3]), Set.of(partition)).all().get();
                return List.of();
            case "move":
                admin.alterReplicaLogDirs(Map.of(replica(partition, words[3]), words[4])).all().get();
                return List.of();
            case "folders":
                return folders(replica(partition, words[3]));
            case "abort":
                var marker = new AbortTransactionSpec(
                        partition, Long.parseLong(words[3]), Short.parseShort(words[4]), Integer.parseInt(words[5]));
                admin.abortTransaction(marker).all().get();
                return List.of();
            case "producers":
                return producers(partition);
            case "earliest-local":
                return offset(partition, OffsetSpec.earliestLocal());
            case "latest-tiered":
                return offset(partition, OffsetSpec.latestTiered());
            default:
                return List.of("!no command " + command);
        }
    }

    private static TopicPartitionReplica replica(TopicPartition partition, String broker) {
        return new TopicPartitionReplica(partition.topic(), partition.partition(), Integer.parseInt(broker));
    }

    private List<String> feature(String name) throws ExecutionException, InterruptedException {
        var found = admin.describeFeatures().featureMetadata().get().finalizedFeatures().get(name);
        return List.of(Integer.toString(found == null ? 0 : found.maxVersionLevel()));
    }

    private List<String> upgrade(String name, short level) throws ExecutionException, InterruptedException {
        var update = new FeatureUpdate(level, FeatureUpdate.UpgradeType.UPGRADE);
        admin.updateFeatures(Map.of(name, update), new UpdateFeaturesOptions()).all().get();
        return List.of();
    }

    private List<String> folders(TopicPartitionReplica replica) throws ExecutionException, InterruptedException {
        var info = admin.describeReplicaLogDirs(Set.of(replica)).all().get().get(replica);
        return List.of(info.getCurrentReplicaLogDir() + "\t" + Optional.ofNullable(info.getFutureReplicaLogDir()).orElse(""));
    }

    private List<String> producers(TopicPartition partition) throws ExecutionException, InterruptedException {
        return admin.describeProducers(Set.of(partition)).partitionResult(partition).get().activeProducers().stream()
                .map(state -> state.producerId() + "\t" + state.producerEpoch() + "\t"
                        + state.coordinatorEpoch().orElse(-1) + "\t" + state.currentTransactionStartOffset().orElse(-1))
                .toList();
    }

    private List<String> offset(TopicPartition partition, OffsetSpec spec)
            throws ExecutionException, InterruptedException {
        return List.of(Long.toString(admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset()));
    }
}
