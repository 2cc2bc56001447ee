package org.apache.kafka.common.test.junit;

import java.util.List;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

/** Takes the place of Kafka's class of this name, which gives a test an embedded Kafka: this one starts Headwater. */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String name;
    private final ClusterConfig config;
    private final boolean combined;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean combined) {
        this.name = name;
        this.config = config;
        this.combined = combined;
    }

    @Override
    public String getDisplayName(int index) {
        return String.format("%s [%d] %s", name, index, String.join(",", config.displayTags()));
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        HeadwaterCluster cluster = new HeadwaterCluster(config);
        return List.of(
            (ExecutionCondition) context -> repeats()
                ? ConditionEvaluationResult.disabled("differs by where Kafka's controller runs, and there is none")
                : ConditionEvaluationResult.enabled(""),
            (BeforeEachCallback) context -> {
                if (config.isAutoStart()) cluster.start();
            },
            (AfterTestExecutionCallback) context -> cluster.stop(),
            new ClusterInstanceParameterResolver(cluster));
    }

    /** Most tests run twice, with controllers apart from brokers and in the same process. */
    private boolean repeats() {
        return combined && config.clusterTypes().contains(Type.KRAFT);
    }
}
