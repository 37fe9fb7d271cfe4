import java.io.FileOutputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** YARN with some node managers, and HDFS with one data node: MiniHadoop NODE_MANAGERS FOLDER. Ends with its input. */
public class MiniHadoop {
  public static void main(String[] arguments) throws Exception {
    Path folder = Path.of(arguments[1]);
    Configuration ofHdfs = new Configuration();
    ofHdfs.set("hdfs.minidfs.basedir", folder.resolve("hdfs").toString());
    MiniDFSCluster hdfs = new MiniDFSCluster.Builder(ofHdfs).numDataNodes(1).build();
    hdfs.waitActive();
    YarnConfiguration wanted = new YarnConfiguration();
    wanted.set("fs.defaultFS", "file:///"); // node managers keep the files of containers on this disk
    wanted.setInt("yarn.scheduler.minimum-allocation-mb", 256);
    wanted.setInt("yarn.nodemanager.resource.memory-mb", 4096);
    wanted.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "100");
    wanted.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
    wanted.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
    wanted.set("yarn.resourcemanager.am.max-attempts", "2");
    String queue = "yarn.scheduler.capacity.root.";
    wanted.set(queue + "queues", "default");
    wanted.set(queue + "default.capacity", "100");
    wanted.set("yarn.scheduler.capacity.maximum-am-resource-percent", "0.9");
    wanted.set(queue + "default.maximum-am-resource-percent", "0.9");
    MiniYARNCluster yarn = new MiniYARNCluster("mini", Integer.parseInt(arguments[0]), 1, 1);
    yarn.init(wanted);
    yarn.start();
    Configuration settings = new YarnConfiguration(yarn.getConfig());
    settings.unset("net.topology.node.switch.mapping.impl"); // a class of the mini cluster, unknown to clients
    for (String name : new String[] {"yarn-site.xml", "core-site.xml"}) {
      try (OutputStream file = new FileOutputStream(folder.resolve(name).toFile())) {
        settings.writeXml(file);
      }
    }
    System.out.println("READY " + hdfs.getURI() + " http://" + hdfs.getNameNode().getHttpAddress().getHostName()
        + ":" + hdfs.getNameNode().getHttpAddress().getPort());
    System.out.flush();
    while (System.in.read() >= 0) {}
    yarn.stop();
    hdfs.shutdown();
    System.exit(0);
  }
}
