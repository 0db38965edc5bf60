package io.tierberg.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/**
 * Takes commands from standard input, one a line, and answers each with {@code ok} or {@code error <text>}.
 *
 * <pre>
 * write SPEC DIR    writes the segments of the lines of file SPEC (see {@link SegmentSpec}) into folder DIR
 * read FILE DUMP    reads record batches from FILE with Kafka's classes and dumps them (see {@link Dump})
 * </pre>
 *
 * Arguments must not hold spaces.
 */
public final class Main {
    private Main() { }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                run(line.trim().split(" "));
                answer = "ok";
            } catch (Exception | OutOfMemoryError e) {
                answer = "error " + e.toString().replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private static void run(String[] words) throws Exception {
        if (words.length != 3) {
            throw new IllegalArgumentException("expected: write SPEC DIR, or read FILE DUMP");
        }
        Path first = Path.of(words[1]);
        Path second = Path.of(words[2]);
        switch (words[0]) {
            case "write" -> SegmentWriter.writeAll(first, second);
            case "read" -> Dump.write(first, second);
            default -> throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }
}
