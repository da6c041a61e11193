//! The handler behind the SDK: lists the two tools and answers their calls.

use crate::ending::Ending;
use crate::limits::ServerLimits;
use crate::port::{AgentPort, Served};
use crate::result_text;
use crate::tasks::{self, Tasks};
use crate::tools;
use crate::tools::arguments::{Problem, RunArguments, StatusArguments};
use policy::{Code, Localize, Message, Refusal, RunId};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock,
    CustomRequest, CustomResult, ErrorCode, GetTaskParams, GetTaskResult, Implementation,
    InitializeRequestParams, InitializeResult, JsonObject, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, Tool, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use runtime::service::{ClientId, RunRequest, RunStatus, Submitted};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often a waiting `agent_status` looks for news.
const STATUS_INTERVAL: Duration = Duration::from_millis(200);

/// Runs of which the last answer is remembered.
const REMEMBERED_RUNS: usize = 64;

/// Methods whose requests arrive here as "custom" when their parameters have the wrong shape (M-5).
const METHODS_WITH_PARAMETERS: [&str; 6] = [
    "tools/call",
    "tools/list",
    "server/discover",
    "tasks/get",
    "tasks/update",
    "tasks/cancel",
];

/// One client's server. Clones share everything: over HTTP each request is served by one.
pub(crate) struct AgentServer<P> {
    port: Arc<P>,
    localize: Arc<dyn Localize>,
    limits: ServerLimits,
    client: ClientId,
    ending: Ending,
    /// Both are made once: they are the same for every request.
    tools: Arc<[Tool]>,
    info: Arc<ServerConfig>,
    answered: Arc<Mutex<VecDeque<RunStatus>>>,
    /// None: the extension is not offered.
    tasks: Option<Tasks<P>>,
}

impl<P> Clone for AgentServer<P> {
    fn clone(&self) -> Self {
        Self {
            port: Arc::clone(&self.port),
            localize: Arc::clone(&self.localize),
            limits: self.limits,
            client: self.client,
            ending: self.ending.clone(),
            tools: Arc::clone(&self.tools),
            info: Arc::clone(&self.info),
            answered: Arc::clone(&self.answered),
            tasks: self.tasks.clone(),
        }
    }
}

impl<P: AgentPort> AgentServer<P> {
    pub(crate) fn new(served: Served<P>, client: ClientId, ending: Ending) -> Self {
        let Served {
            service,
            localize,
            limits,
            tasks: parts,
        } = served;
        let port = Arc::new(service);
        let tools = tools::list(localize.as_ref()).into();
        let capabilities = ServerCapabilities::builder().enable_tools();
        let capabilities = match parts {
            Some(_) => capabilities.enable_tasks().build(),
            None => capabilities.build(),
        };
        let tasks = parts.map(|parts| Tasks::new(Arc::clone(&port), Arc::clone(&localize), parts));
        let info = ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("agent-mcp", env!("CARGO_PKG_VERSION")))
            .with_instructions(localize.text(&Message::new("mcp.instructions")));
        Self {
            port,
            localize,
            limits,
            client,
            ending,
            tools,
            info: Arc::new(info),
            answered: Arc::default(),
            tasks,
        }
    }

    /// Stops every run of the client safely; returns when they are over and what became of their tasks is written down.
    pub(crate) async fn client_gone(&self) {
        self.port.client_gone(self.client).await;
        if let Some(tasks) = &self.tasks {
            tasks.settle().await;
        }
    }

    async fn submit(&self, arguments: JsonObject) -> Result<Submitted, Refusal> {
        let arguments = RunArguments::parse(arguments, &self.limits.images)
            .map_err(|problem| self.refusal(problem))?;
        let request = RunRequest {
            request: arguments.request,
            session_id: arguments.session_id,
            temperature: arguments.temperature,
            images: arguments.images,
            client: self.client,
            cwd: None,
        };
        self.unless_over(self.port.submit(request)).await
    }

    /// A task where the client can read one, else the text that says how to ask.
    async fn run(
        &self,
        arguments: JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, Refusal> {
        let submitted = self.submit(arguments).await?;
        match &self.tasks {
            Some(tasks) if tasks::are_wanted(context) => {
                tasks.create(&submitted).await.map(CallToolResponse::Task)
            }
            _ => {
                let queued = self.localize.text(&Message::new("mcp.task_queued"));
                Ok(text(result_text::submitted(&submitted, &queued)))
            }
        }
    }

    fn tasks(&self, method: &str) -> Result<&Tasks<P>, ErrorData> {
        self.tasks
            .as_ref()
            .ok_or_else(|| ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None))
    }

    async fn status(
        &self,
        arguments: JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Result<String, Refusal> {
        let arguments =
            StatusArguments::parse(arguments).map_err(|problem| self.refusal(problem))?;
        let ask = || self.unless_over(self.port.status(arguments.task_id, arguments.session_id));
        let mut status = ask().await?;
        if self.limits.status_wait.is_zero() {
            return Ok(result_text::status(&status, self.localize.as_ref()));
        }
        let deadline = tokio::time::Instant::now() + self.limits.status_wait;
        while self.is_old_news(&status) && tokio::time::Instant::now() < deadline {
            tokio::select! {
                () = tokio::time::sleep(STATUS_INTERVAL) => status = ask().await?,
                () = self.ending.input_over() => break,
                () = context.ct.cancelled() => break,
            }
        }
        self.remember(&status);
        Ok(result_text::status(&status, self.localize.as_ref()))
    }

    /// The runtime's answer, or a refusal when the server may not wait for it any more (M-3).
    async fn unless_over<T>(
        &self,
        answer: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        tokio::select! {
            biased;
            answer = answer => answer,
            () = self.ending.handlers_over() => Err(Refusal::new(Code::ServerStopping, "mcp", "")),
        }
    }

    fn refusal(&self, problem: Problem) -> Refusal {
        Refusal::new(problem.code, "mcp", problem.field)
            .with("detail", self.localize.text(&problem.detail))
    }

    /// Whether the client was told exactly this before, and something may still change.
    fn is_old_news(&self, status: &RunStatus) -> bool {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        !status.state.is_terminal() && answered.iter().any(|known| known == status)
    }

    fn remember(&self, status: &RunStatus) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let run: RunId = status.run_id;
        answered.retain(|known| known.run_id != run);
        if !status.state.is_terminal() {
            if answered.len() == REMEMBERED_RUNS {
                answered.pop_front();
            }
            answered.push_back(status.clone());
        }
    }
}

fn text(text: String) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

impl<P: AgentPort> ServerHandler for AgentServer<P> {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::clone(&self.info)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let mut result = self.negotiate_initialize(&request)?;
        // No revision with this handshake can read a task (M-7).
        result.capabilities.extensions = None;
        Ok(result)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        // There is one page, so no cursor is ours. Some clients send an empty one for the first page.
        if request
            .and_then(|request| request.cursor)
            .is_some_and(|cursor| !cursor.is_empty())
        {
            return Err(ErrorData::invalid_params(
                "cursor: not one of this server",
                None,
            ));
        }
        Ok(ListToolsResult::with_all_items(self.tools.to_vec()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let outcome = match request.name.as_ref() {
            tools::RUN => self.run(arguments, &context).await,
            tools::STATUS => self.status(arguments, &context).await.map(text),
            _ => {
                return Err(ErrorData::invalid_params(
                    "name: there is no such tool",
                    None,
                ));
            }
        };
        Ok(outcome.unwrap_or_else(|refusal| {
            let text = result_text::refusal(&refusal, self.localize.as_ref());
            CallToolResult::error(vec![ContentBlock::text(text)]).into()
        }))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let tasks = self.tasks("tasks/get")?;
        let (task, meta) = tasks.get(&request.task_id, &context).await?;
        let mut result = GetTaskResult::new(task);
        result.meta = Some(meta);
        Ok(result)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let tasks = self.tasks("tasks/update")?;
        tasks.update(&request.task_id, &context).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let tasks = self.tasks("tasks/cancel")?;
        tasks.cancel(&request.task_id, &context).await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if METHODS_WITH_PARAMETERS.contains(&request.method.as_str()) {
            return Err(ErrorData::invalid_params(
                "params: they do not have the shape this method needs",
                None,
            ));
        }
        Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            request.method,
            None,
        ))
    }
}
