// The first argument of this program where it only sets signals to be ignored, and becomes the command.
#define OOMGUARD_START_IGNORING "start-ignoring"

unsigned long long oomguard_ignored_at_start(void);
int oomguard_closed_at_start(void);

// oomguard_catch has the number of a signal written to a descriptor, a byte each time when somebody else has sent it.
int oomguard_catch(int signal, int to);
int oomguard_release(int signal);
