import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.TreeSet;
import javax.management.AttributeNotFoundException;
import javax.management.InstanceNotFoundException;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Reads numbers from a broker's JMX port. Each input line is an object name pattern, a tab and an attribute; the answer
 * is one line per bean found, {@code name<tab>value}, then an empty line. Ends with its input.
 */
public final class JmxReader {
    private JmxReader() {}

    public static void main(String[] args) throws Exception {
        var url = new JMXServiceURL("service:jmx:rmi:///jndi/rmi://" + args[0] + "/jmxrmi");
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (JMXConnector connector = JMXConnectorFactory.connect(url)) {
            MBeanServerConnection beans = connector.getMBeanServerConnection();
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] parts = line.split("\t", 2);
                for (ObjectName name : new TreeSet<>(beans.queryNames(new ObjectName(parts[0]), null))) {
                    try {
                        System.out.println(name + "\t" + beans.getAttribute(name, parts[1]));
                    } catch (AttributeNotFoundException | InstanceNotFoundException gone) {
                        continue; // another kind of bean under the same pattern, or one that went meanwhile
                    }
                }
                System.out.println();
                System.out.flush();
            }
        }
    }
}
