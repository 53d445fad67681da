// SPDX-License-Identifier: MIT OR Apache-2.0
// The small job of Java: collections, an exception, threads, a virtual thread.

import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;

public class Job {
    public static void main(String[] words) throws Exception {
        System.out.println(IntStream.range(0, 20000).map(i -> i * 7 % 1009).sorted().skip(9999).findFirst().getAsInt());
        try {
            Integer.parseInt("x");
        } catch (NumberFormatException error) {
            System.out.println(error.getMessage());
        }
        List<Thread> threads = new ArrayList<>();
        int[] sums = new int[4];
        for (int t = 0; t < 4; t++) {
            int number = t;
            Runnable work = () -> sums[number] = IntStream.range(0, 1000 * number).sum();
            threads.add(t % 2 == 0 ? new Thread(work) : Thread.ofVirtual().unstarted(work));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println(sums[0] + sums[1] + sums[2] + sums[3]);
    }
}
