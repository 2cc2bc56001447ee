package org.apache.kafka.common.test.junit;

import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import kafka.server.ControllerServer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Authorizer;
import scala.Option;

/**
 * The rules of Headwater where a test sets them through the authorizer of Kafka's controller. No class of the test names
 * the principals: clients that do not log in are Headwater's User:ANONYMOUS, and not the test's Group:client.
 */
final class HeadwaterRules {
    private static final String THEIRS = "Group:client";
    private static final String OURS = "User:ANONYMOUS";

    private HeadwaterRules() {
    }

    static ControllerServer asController(HeadwaterCluster cluster) {
        Authorizer authorizer = HeadwaterBroker.proxy(Authorizer.class, (name, given) -> {
            try (Admin admin = cluster.superUser()) {
                return answer(admin, name, given);
            }
        });
        Plugin<?> plugin = HeadwaterBroker.standIn(Plugin.class, (name, given) -> {
            if (!name.equals("get")) throw HeadwaterBroker.unknown(name);
            return authorizer;
        });
        return HeadwaterBroker.standIn(ControllerServer.class, (name, given) -> {
            if (!name.equals("authorizerPlugin")) throw HeadwaterBroker.unknown(name);
            return Option.apply(plugin);
        });
    }

    static Collection<AclBinding> found(Admin admin, AclBindingFilter filter)
            throws ExecutionException, InterruptedException {
        return admin.describeAcls(ours(filter)).values().get().stream()
            .map(rule -> changed(rule, OURS, THEIRS)).collect(Collectors.toSet());
    }

    private static Object answer(Admin admin, String name, Object... given) throws Exception {
        switch (name) {
            case "acls": return found(admin, (AclBindingFilter) given[0]);
            case "createAcls":
                admin.createAcls(((List<?>) given[1]).stream().map(rule -> changed((AclBinding) rule, THEIRS, OURS))
                    .toList()).all().get();
                return List.of(CompletableFuture.completedFuture(AclCreateResult.SUCCESS));
            case "deleteAcls":
                admin.deleteAcls(((List<?>) given[1]).stream().map(filter -> ours((AclBindingFilter) filter))
                    .toList()).all().get();
                return List.of(CompletableFuture.completedFuture(new AclDeleteResult(List.of())));
            default: throw HeadwaterBroker.unknown(name);
        }
    }

    private static AclBinding changed(AclBinding rule, String from, String to) {
        AccessControlEntry entry = rule.entry();
        if (!entry.principal().equals(from)) return rule;
        return new AclBinding(rule.pattern(),
            new AccessControlEntry(to, entry.host(), entry.operation(), entry.permissionType()));
    }

    private static AclBindingFilter ours(AclBindingFilter filter) {
        AccessControlEntryFilter entry = filter.entryFilter();
        if (!THEIRS.equals(entry.principal())) return filter;
        return new AclBindingFilter(filter.patternFilter(),
            new AccessControlEntryFilter(OURS, entry.host(), entry.operation(), entry.permissionType()));
    }
}
